//! The bytes of arguments and results.

use meta::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("these types have no maps of unknown length, the only thing that fails")
}

/// Decodes the arguments of a request.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes)
        .map_err(|why| Error::Corrupt(format!("a {} in a request: {why}", std::any::type_name::<T>())))
}

/// Decodes the answer to a request. What the journal took for it may be behind it; the calling
/// thread then carries that.
pub(super) fn decode_answer<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let (answer, rest) = postcard::take_from_bytes(bytes)
        .map_err(|why| Error::Corrupt(format!("a {} in an answer: {why}", std::any::type_name::<T>())))?;
    volume::Carried::from_bytes(rest).carry();
    Ok(answer)
}
