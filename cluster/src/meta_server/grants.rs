//! Signs tokens for the permissions of a session on chunk sets. Stores check these tokens. There
//! are no side effects; the caller passes the time in.

use crate::capability::{Capability, ClusterKey, Fence, FenceMessage, Rights};
use plan::SessionId;
use session::transport::Grant;
use std::sync::Arc;
use std::time::Duration;

/// Signs what the metadata server grants to the sessions of a volume.
pub(super) struct Signer {
    key: Arc<ClusterKey>,
    volume: [u8; 16],
    lease_ms: u64,
}

impl Signer {
    pub fn new(key: Arc<ClusterKey>, volume: [u8; 16], lease: Duration) -> Self {
        Self { key, volume, lease_ms: u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).max(2) }
    }

    /// When a token signed now expires: after one and a half to two leases. The time stays the same
    /// for half a lease, and with it the token, which stores then have in their cache.
    fn expires_ms(&self, now_ms: u64) -> u64 {
        let half = self.lease_ms / 2;
        (now_ms - now_ms % half).saturating_add(self.lease_ms.saturating_mul(2))
    }

    /// The message to stores that of all sessions before `next` only those in `live` exist.
    pub fn fence(&self, next: SessionId, live: Vec<SessionId>, now_ms: u64) -> Vec<u8> {
        FenceMessage::encode(&self.key.own(now_ms), Fence { volume: self.volume, next, live })
    }

    /// The signed tokens, concatenated.
    pub fn sign(&self, session: SessionId, grants: &[Grant], now_ms: u64) -> Vec<u8> {
        let expires_ms = self.expires_ms(now_ms);
        let sign = |grant: &Grant| {
            let rights = if grant.write { Rights::Write } else { Rights::Read };
            self.key.sign(&Capability { volume: self.volume, set: grant.set, rights, session, expires_ms })
        };
        grants.iter().map(sign).flat_map(|token| token.as_bytes().to_vec()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{TOKEN_BYTES, Token};
    use plan::SetId;

    #[test]
    fn tokens_last_for_more_than_a_lease_and_two_at_most() {
        let path = std::env::temp_dir().join(format!("weft-grants-{}", std::process::id()));
        ClusterKey::create(&path).unwrap();
        let key = Arc::new(ClusterKey::read(&path).unwrap().unwrap());
        std::fs::remove_file(&path).unwrap();
        let signer = Signer::new(key.clone(), [6; 16], Duration::from_secs(30));
        for now in (1_000_000..1_100_000).step_by(777) {
            let left = signer.expires_ms(now) - now;
            assert!((45_000..=60_000).contains(&left), "{left}");
        }
        let grants = [Grant { set: SetId(4), write: false }, Grant { set: SetId(5), write: true }];
        let tokens = signer.sign(SessionId(8), &grants, 1_000_000);
        let opened: Vec<Capability> =
            tokens.chunks(TOKEN_BYTES).map(|token| key.open(&Token::from_bytes(token).unwrap()).unwrap()).collect();
        let capability = |set, rights| Capability {
            volume: [6; 16],
            set,
            rights,
            session: SessionId(8),
            expires_ms: signer.expires_ms(1_000_000),
        };
        assert_eq!(opened, [capability(SetId(4), Rights::Read), capability(SetId(5), Rights::Write)]);
        assert_eq!(signer.sign(SessionId(8), &grants, 1_000_001), tokens, "the same for a while");
    }
}
