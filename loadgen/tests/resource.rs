//! Every guarded resource takes and refuses the same writes.

mod harness;

use std::time::Duration;

use harness::private_cluster::PrivateCluster;
use monolock_loadgen::resource::{
    self, Author, Choice, Prepared, Resource, ResourceError, Rules, Write, Written,
};

const ROWS: [&str; 2] = ["one", "other"];

fn author(token: u64, granted_nanos: u64) -> Author {
    Author { token, granted_nanos }
}

fn open(prepared: &Prepared, is_fenced: bool) -> Box<dyn Resource> {
    let rules = Rules { is_fenced, patience: Duration::from_secs(20) };
    resource::open(&prepared.site, ROWS.map(str::to_owned).to_vec(), rules).expect("it is there")
}

fn prepare(choice: &Choice) -> Prepared {
    Prepared::new(choice, &ROWS.map(str::to_owned), 2).expect("it can be made")
}

#[track_caller]
fn write(resource: &mut dyn Resource, row: u32, author: Author) -> Written {
    resource.write(&Write { row, author, value: 1 }).expect("it is there")
}

/// A row that checks tokens.
fn expect_a_fence(prepared: &Prepared) {
    let mut resource = open(prepared, true);
    let [early, late] = [author(10, 500), author(20, 900)];
    assert_eq!(write(&mut *resource, 0, early), Written::Taken, "the first one");
    assert_eq!(write(&mut *resource, 0, early), Written::Taken, "one holder writes many times");
    assert_eq!(write(&mut *resource, 0, late), Written::Taken);
    assert_eq!(write(&mut *resource, 0, early), Written::Refused);
    assert_eq!(write(&mut *resource, 0, late), Written::Taken, "a refusal changes nothing");
    assert_eq!(write(&mut *resource, 1, early), Written::Taken, "another row, another lock");
    // Who has the same token, and was granted it before, is a past holder all the same.
    let same_token_before = author(20, 800);
    assert_eq!(write(&mut *resource, 0, same_token_before), Written::TakenOver(late));
}

/// The row of the same name without its check: the judge still sees what happens.
fn expect_no_fence(prepared: &Prepared) {
    let mut resource = open(prepared, false);
    let [early, late, last] = [author(30, 500), author(40, 900), author(50, 1000)];
    assert_eq!(write(&mut *resource, 1, late), Written::Taken);
    assert_eq!(write(&mut *resource, 1, early), Written::TakenOver(late));
    assert_eq!(write(&mut *resource, 1, early), Written::Taken, "over its own");
    assert_eq!(write(&mut *resource, 1, late), Written::Taken);
    assert_eq!(write(&mut *resource, 1, last), Written::Taken);
}

fn expect_both_writers_are_in_one_order(prepared: &Prepared) {
    let mut resources = [open(prepared, true), open(prepared, true)];
    let base = 1000;
    std::thread::scope(|scope| {
        for (number, resource) in (0_u64..).zip(&mut resources) {
            scope.spawn(move || {
                for round in 0..100 {
                    let token = base + round * 2 + number;
                    let written = write(&mut **resource, 0, author(token, token));
                    assert!(!matches!(written, Written::TakenOver(_)), "{token}: {written:?}");
                }
            });
        }
    });
    let [mut one, _] = resources;
    assert_eq!(write(&mut *one, 0, author(base + 198, 1)), Written::Refused, "199 was there");
}

#[test]
fn memory() {
    let prepared = prepare(&Choice::Memory);
    expect_a_fence(&prepared);
    expect_no_fence(&prepared);
}

#[test]
fn sqlite() {
    let prepared = prepare(&Choice::Sqlite(None));
    expect_a_fence(&prepared);
    expect_no_fence(&prepared);
    expect_both_writers_are_in_one_order(&prepared);
}

#[test]
fn a_temporary_file_is_gone_afterwards() {
    let prepared = prepare(&Choice::Sqlite(None));
    let resource::Site::Sqlite(path) = prepared.site.clone() else {
        panic!("{prepared:?}");
    };
    assert!(path.exists());
    drop(prepared);
    assert!(!path.exists() && !path.parent().expect("a directory").exists());
}

#[test]
fn a_token_beyond_a_bigint_is_said_so() {
    let prepared = prepare(&Choice::Sqlite(None));
    let write = Write { row: 0, author: author(1 << 63, 1), value: 1 };
    let error = open(&prepared, true).write(&write).expect_err("it doesn't fit");
    assert!(matches!(error, ResourceError::Token(_)), "{error}");
}

#[test]
fn postgresql() {
    let Some(cluster) = PrivateCluster::start(20) else {
        return;
    };
    let choice = Choice::Postgres(cluster.url());
    let prepared = prepare(&choice);
    expect_a_fence(&prepared);
    expect_no_fence(&prepared);
    expect_both_writers_are_in_one_order(&prepared);
    let again = Prepared::new(&choice, &["a third one".to_owned()], 2);
    again.expect("the table may be there already");
    let error = Prepared::new(&choice, &[], 20).expect_err("20 and this one");
    assert!(error.to_string().contains("permits 20 connections"), "{error}");
}
