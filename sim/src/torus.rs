//! A torus network that connects the stores.

use plan::TargetId;
use plan::topology::{Places, Torus};

/// Sizes as a torus.
///
/// # Errors
/// One line, when they are none.
pub fn parse(sizes: &[u16]) -> Result<Torus, String> {
    let text = sizes.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
    text.parse().map_err(|why| format!("cluster.torus: {why}"))
}

/// The places of the stores in a torus of these sizes; None when the sizes are not a torus.
pub fn places(sizes: &[u16], stores: u64) -> Option<Places> {
    let torus = parse(sizes).ok()?;
    let of = (0..stores as u16).map(TargetId).zip(torus.all()).collect();
    Some(Places { torus, of })
}
