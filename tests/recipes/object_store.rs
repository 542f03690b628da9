//! A bucket as S3 has them: written on a condition, with ETags that are hashes of the body.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex};

use monolock_client::{Token, Written};

use crate::{Resource, check_at_once, check_in_turn, tokens};

#[path = "../../examples/recipes/object_store.rs"]
mod recipe;

use recipe::{Bucket, Condition, Object, ObjectError};

#[derive(Clone, Default)]
struct FakeBucket {
    objects: Arc<Mutex<HashMap<String, String>>>,
    /// Runs once, between somebody's look and the write.
    in_between: Arc<Mutex<Option<Interruption>>>,
}

type Interruption = Box<dyn FnOnce() + Send>;

fn etag_of(body: &str) -> String {
    format!("{:x}", BuildHasherDefault::<DefaultHasher>::default().hash_one(body))
}

impl Bucket for FakeBucket {
    type Error = Infallible;

    fn get(&self, key: &str) -> Result<Option<Object>, Infallible> {
        let objects = self.objects.lock().expect("no test failed");
        let body = objects.get(key).cloned();
        Ok(body.map(|body| Object { etag: etag_of(&body), body }))
    }

    fn put(&self, key: &str, body: String, condition: Condition) -> Result<bool, Infallible> {
        let interruption = self.in_between.lock().expect("no test failed").take();
        if let Some(interruption) = interruption {
            interruption();
        }
        let mut objects = self.objects.lock().expect("no test failed");
        let now = objects.get(key).map(|body| etag_of(body));
        let holds = match (condition, now) {
            (Condition::IsStill(etag), Some(now)) => etag == now,
            (Condition::IsNotThere, None) => true,
            _ => false,
        };
        if holds {
            objects.insert(key.to_owned(), body);
        }
        Ok(holds)
    }
}

impl Resource for FakeBucket {
    fn write(&mut self, token: Token, text: &str) -> Written<()> {
        recipe::write(self, "report", token, text).expect("it has a token")
    }

    fn content(&mut self) -> String {
        let object = self.get("report").expect("infallible").expect("it is there");
        object.body.split_once('\n').expect("a first line").1.to_owned()
    }
}

#[test]
fn an_older_token_changes_nothing() {
    check_in_turn(&mut FakeBucket::default());
    let bucket = FakeBucket::default();
    check_at_once(|| bucket.clone());
}

/// The next holder comes after the sleeper's look, and begins by writing what is there already.
#[test]
fn a_takeover_between_look_and_write_is_seen() {
    let [older, newer] = tokens();
    for is_there in [false, true] {
        let mut bucket = FakeBucket::default();
        if is_there {
            bucket.write(older, "text");
        }
        let mut others = FakeBucket { objects: Arc::clone(&bucket.objects), ..Default::default() };
        let takeover = move || assert_eq!(others.write(newer, "text"), Written::Done(()));
        *bucket.in_between.lock().expect("nobody else") = Some(Box::new(takeover));
        assert_eq!(bucket.write(older, "asleep"), Written::Refused);
        assert_eq!(bucket.content(), "text");
    }
}

#[test]
fn an_object_without_a_token_is_not_written_over() {
    let [token] = tokens();
    let bucket = FakeBucket::default();
    bucket.objects.lock().expect("nobody else").insert("report".into(), "by hand".into());
    let written = recipe::write(&bucket, "report", token, "text");
    assert!(matches!(written, Err(ObjectError::NoToken)), "{written:?}");
}
