//! An object of a store that writes on a condition, such as S3.

use monolock_client::{Token, Written};

/// What is needed of the store.
pub(crate) trait Bucket {
    type Error;

    /// The object as it is now, if it is there.
    fn get(&self, key: &str) -> Result<Option<Object>, Self::Error>;

    /// Writes the object. False if the condition does not hold (412, and S3's 409).
    fn put(&self, key: &str, body: String, condition: Condition) -> Result<bool, Self::Error>;
}

pub(crate) struct Object {
    pub(crate) etag: String,
    pub(crate) body: String,
}

pub(crate) enum Condition {
    /// `If-Match: etag`
    IsStill(String),
    /// `If-None-Match: *`
    IsNotThere,
}

#[derive(Debug)]
pub(crate) enum ObjectError<E> {
    Bucket(E),
    /// Somebody writes it who knows nothing of tokens, so there is nothing to compare with.
    NoToken,
}

/// Writes an object whose first line is the token.
///
/// It is not in the metadata: where the ETag is a hash of the body alone, as mostly in S3, a write
/// that changes nothing but the metadata would leave the ETag as it was.
pub(crate) fn write<B: Bucket>(
    bucket: &B,
    key: &str,
    token: Token,
    content: &str,
) -> Result<Written<()>, ObjectError<B::Error>> {
    loop {
        let condition = match bucket.get(key).map_err(ObjectError::Bucket)? {
            None => Condition::IsNotThere,
            Some(object) if token_of(&object)? > token.get() => return Ok(Written::Refused),
            Some(object) => Condition::IsStill(object.etag),
        };
        let body = format!("{token}\n{content}");
        if bucket.put(key, body, condition).map_err(ObjectError::Bucket)? {
            return Ok(Written::Done(()));
        }
        // Somebody has written in between: a newer holder, or an older one for the last time.
    }
}

fn token_of<E>(object: &Object) -> Result<u64, ObjectError<E>> {
    let first = object.body.lines().next().and_then(|line| line.parse().ok());
    first.ok_or(ObjectError::NoToken)
}
