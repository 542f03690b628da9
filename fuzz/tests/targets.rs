//! Every target, with what is known to be worth trying and with what is drawn.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use monolock_fuzz::campaign::{self, Extent};
use monolock_fuzz::{TARGETS, Target, golden};

/// The inputs of a plain `cargo test`: the same in every run.
const SEED: u64 = 7070;

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let input = fs::read(&path).expect("a file of the corpus");
            (path, input)
        })
        .collect()
}

fn target(wanted: &str) -> Target {
    let (_, target) = TARGETS.iter().find(|(name, _)| *name == wanted).expect("there is one");
    *target
}

/// For a number of inputs, or for the time that the environment gives.
fn campaign(name: &str, inputs: u32) {
    let seconds = std::env::var("MONOLOCK_FUZZ_SECONDS")
        .ok()
        .map(|text| text.parse().expect("MONOLOCK_FUZZ_SECONDS is a number of seconds"));
    let (seed, extent) = match seconds {
        None => (SEED, Extent::Inputs(inputs)),
        Some(seconds) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
            (now.as_secs(), Extent::Time(Duration::from_secs(seconds)))
        }
    };
    println!("{name}: seed {seed}, {extent:?}");
    let target = target(name);
    let mut seeds: Vec<Vec<u8>> = corpus(name).into_iter().map(|(_, input)| input).collect();
    // Frames are no programs.
    if !["engine", "moves"].contains(&name) {
        seeds.extend(golden::inputs());
    }
    for input in &seeds {
        target(input);
    }
    match campaign::run(target, seed, &seeds, extent) {
        Ok(count) => println!("{name}: {count} inputs"),
        Err(fault) => {
            let input = campaign::shrink(target, fault.input);
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-fault"));
            fs::write(&file, &input).expect("writing the input");
            panic!(
                "{name}: input {} of seed {seed} is a fault. Keep it in fuzz/corpus/{name}: it is \
                 in {}, and is {input:02x?}",
                fault.number,
                file.display()
            );
        }
    }
}

#[test]
fn first_frame() {
    campaign("first_frame", 20_000);
}

#[test]
fn server_frames() {
    campaign("server_frames", 20_000);
}

#[test]
fn settings() {
    campaign("settings", 1_000);
}

#[test]
fn engine() {
    campaign("engine", 10_000);
}

#[test]
fn moves() {
    campaign("moves", 10_000);
}

#[test]
fn no_input_of_the_corpus_is_a_fault() {
    for (name, target) in TARGETS {
        for (path, input) in corpus(name) {
            assert!(!campaign::is_fault(target, &input), "{}", path.display());
        }
    }
}

/// A campaign that can't fail would be worth nothing.
#[test]
fn a_planted_fault_is_found_and_shrunk_to_what_it_takes() {
    let planted: Target = |bytes| assert!(!bytes.windows(3).any(|part| part == [2, 2, 0xff]));
    let fault = campaign::run(planted, SEED, &golden::inputs(), Extent::Inputs(200_000));
    let input = fault.expect_err("it is found").input;
    assert_eq!(campaign::shrink(planted, input), [2, 2, 0xff]);
}
