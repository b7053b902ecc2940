//! Tokens by which a client asks for the next page of a listing.

use s3s::{S3Result, s3_error};

/// A token for the next page of a listing.
pub fn token(last: &str) -> String {
    base64_simd::URL_SAFE_NO_PAD.encode_to_string(last)
}

/// Where a token goes on.
///
/// # Errors
/// `InvalidArgument`.
pub fn from_token(token: &str) -> S3Result<String> {
    let bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(token).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| s3_error!(InvalidArgument, "the continuation token is not one of this gateway's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back() {
        assert_eq!(from_token(&token("a/ä b")).unwrap(), "a/ä b");
        assert!(from_token("*").is_err());
    }
}
