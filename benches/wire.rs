//! Frames: decoding and encoding.
//!
//! `cargo bench --bench wire`

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use criterion::Criterion;
use monolock_core::fencing::Token;
use monolock_core::wire::{
    Acquire, ERROR_LEN_MAX, ErrorCode, Farewell, decode_first, decode_server, encode_acquire,
    encode_standing,
};

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .sample_size(20)
        .configure_from_args();
    acquire(&mut criterion);
    answers(&mut criterion);
    criterion.final_summary();
}

fn acquire(criterion: &mut Criterion) {
    let lease_ms = NonZeroU32::new(10_000).expect("not zero");
    let mut frame = Vec::new();
    for name in ["nightly/import-1".to_owned(), "n".repeat(255), "\u{fc}".repeat(127)] {
        let bytes = name.len();
        let kind = if name.is_ascii() { "ASCII" } else { "other UTF-8" };
        let acquire = Acquire { lease_ms, name: &name };
        criterion.bench_function(&format!("encode ACQUIRE/{bytes} bytes {kind}"), |bencher| {
            bencher.iter(|| {
                frame.clear();
                encode_acquire(black_box(acquire), &mut frame);
            });
        });
        criterion.bench_function(&format!("decode ACQUIRE/{bytes} bytes {kind}"), |bencher| {
            bencher.iter(|| decode_first(black_box(&frame)).map(black_box));
        });
    }
}

fn answers(criterion: &mut Criterion) {
    let token = Token::new(1_872_956_384_870_401);
    let mut out = [0; ERROR_LEN_MAX];
    criterion.bench_function("encode WAITING", |bencher| {
        bencher.iter(|| encode_standing(black_box(None), 1, black_box(&mut out)));
    });
    criterion.bench_function("encode ACQUIRED", |bencher| {
        bencher.iter(|| encode_standing(black_box(token), 1, black_box(&mut out)));
    });
    criterion.bench_function("decode ACQUIRED", |bencher| {
        bencher.iter(|| decode_server(black_box(&out[..9])).map(black_box));
    });
    let farewell = Farewell::new(ErrorCode::SHUTTING_DOWN);
    criterion.bench_function("encode ERROR", |bencher| {
        bencher.iter(|| black_box(farewell).encode(black_box(&mut out)));
    });
    let farewell = Farewell::unknown_type(0x7f);
    criterion.bench_function("encode ERROR that names a byte", |bencher| {
        bencher.iter(|| black_box(farewell).encode(black_box(&mut out)));
    });
}
