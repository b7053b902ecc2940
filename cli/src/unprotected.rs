//! `none:K+M`: as many blocks as a code of that shape has, and zeroes in the place of parity. The
//! study of what a write costs compares with it. Nothing can be rebuilt from it, so only benches
//! use it, and volumes that are created with `--unsafe-no-parity`.

use crate::failure::Failure;
use ec::{Code, Spec};
use std::sync::Arc;

/// What such a volume is, in words.
pub const WORDS: &str = "NO REDUNDANCY: parity blocks are zeroes, for comparisons; what a target loses is lost";

/// The full spec, if the text is `none:K+M`, with or without its parameter.
pub fn spec(code: &str) -> Option<String> {
    let mut spec: Spec = code.parse().ok()?;
    if spec.name == "none" && spec.parameters.is_empty() {
        spec.parameters.push(("unsafe".into(), 1));
    }
    spec.stores_zeroes().then(|| spec.to_string())
}

/// The code of a spec, with `none:K+M` as it may be written where such a code may be had.
pub fn parse(code: &str) -> Result<Arc<dyn Code>, Failure> {
    Ok(ec::parse(spec(code).as_deref().unwrap_or(code))?)
}

/// The code of a spec for data that somebody may need again; with `allowed`, also `none:K+M`.
pub fn parse_if(code: &str, allowed: bool) -> Result<Arc<dyn Code>, Failure> {
    match (spec(code), allowed) {
        (Some(_), false) => Err(Failure::Usage(format!(
            "{code} stores zeroes in the place of parity, so nothing is protected; for comparisons, weft volume create \
             makes such a volume with --unsafe-no-parity"
        ))),
        (None, true) => Err(Failure::Usage(format!("--unsafe-no-parity is for none:K+M; {code} is another code"))),
        _ => parse(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_none_with_parity_blocks_is_meant() {
        for text in ["none:4+2", "none:4+2,unsafe=1"] {
            assert_eq!(spec(text).as_deref(), Some("none:4+2,unsafe=1"));
            assert!(parse_if(text, false).is_err());
            assert_eq!(parse_if(text, true).unwrap().spec().to_string(), "none:4+2,unsafe=1");
        }
        for text in ["none:4", "none:4+0", "rs:4+2", "none:4+2,unsafe=2", "none", ""] {
            assert_eq!(spec(text), None, "{text}");
        }
        assert!(parse_if("rs:4+2", true).is_err() && parse_if("rs:4+2", false).is_ok());
    }
}
