//! Functions that take any bytes at all and panic if what they try breaks a promise of its own.
//!
//! A target knows nothing of where its bytes come from, so any fuzzer can drive it. [`campaign`]
//! does so without one: it needs no coverage and no nightly compiler, only time. `cargo test`
//! gives it a bounded number of inputs, `MONOLOCK_FUZZ_SECONDS` as many seconds for each target.
//!
//! | module | what is tried |
//! |---|---|
//! | [`first_frame`] | the decoder of a client's first frame |
//! | [`server_frames`] | the decoder of what a server sends |
//! | [`engine`] | the state machine: the bytes are a program of what happens to it |
//! | [`moves`] | several of it, between which connections move and messages are late |
//! | [`settings`] | durations and flags |
//! | [`campaign`] | random and mutated inputs |
//! | [`golden`] | the frames of `tests/golden` as the inputs to begin with |

pub mod campaign;
pub mod engine;
pub mod first_frame;
pub mod golden;
pub mod moves;
mod peer;
pub mod server_frames;
pub mod settings;

/// Panics if the bytes make something break a promise.
pub type Target = fn(&[u8]);

/// Every target with its name, which is its folder below `corpus/` too.
pub const TARGETS: [(&str, Target); 5] = [
    ("engine", engine::run),
    ("first_frame", first_frame::run),
    ("moves", moves::run),
    ("server_frames", server_frames::run),
    ("settings", settings::run),
];
