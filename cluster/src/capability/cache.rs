//! The client's capability cache: it keeps the tokens that the metadata server gave, by chunk set,
//! and renews them when a store refuses one.

use super::{Credentials, Rights, TOKEN_BYTES, Token, set_of};
use crate::ranks::{KnownTokens, TokenRequest};
use plan::SetId;
use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;
use volume::ranked::{Guard, Ranked};
use volume::target::TargetFile;

/// The cache keeps the tokens of this many recent chunk sets, and as many older ones.
const MAX_RECENT_SETS: usize = 8192;

/// Repeats the request that the metadata server answered with a token. With arguments it repeats
/// that request for extents. Without them it asks for the chunk sets that this client writes to.
/// The code that reads answers puts the new tokens into the cache.
type Ask = Box<dyn Fn(Option<&[u8]>) + Send + Sync>;

/// The tokens for one chunk set.
#[derive(Clone, Debug, Default)]
struct Kept {
    write: Option<Token>,
    /// The read token, and the arguments of the request for extents that returned it.
    read: Option<(Token, Vec<u8>)>,
}

/// The capability cache of a client.
#[derive(Default)]
pub(crate) struct CapabilityCache {
    tokens: Ranked<Tokens, KnownTokens>,
    ask: OnceLock<Ask>,
    /// Held during a request to the metadata server, so that many operations that are refused at
    /// once cause one request.
    asking: Ranked<(), TokenRequest>,
}

/// Two generations: tokens put in recently, and older ones.
#[derive(Debug, Default)]
struct Tokens {
    new: HashMap<SetId, Kept>,
    old: HashMap<SetId, Kept>,
}

impl fmt::Debug for CapabilityCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CapabilityCache")
    }
}

impl Tokens {
    fn entry(&mut self, set: SetId) -> &mut Kept {
        if self.new.len() >= MAX_RECENT_SETS && !self.new.contains_key(&set) {
            self.old = std::mem::take(&mut self.new);
        }
        let old = &mut self.old;
        self.new.entry(set).or_insert_with(|| old.remove(&set).unwrap_or_default())
    }

    fn get(&self, set: SetId) -> Option<&Kept> {
        self.new.get(&set).or_else(|| self.old.get(&set))
    }
}

impl CapabilityCache {
    /// Sets the function that asks the metadata server for new tokens. Without it nothing is
    /// renewed.
    pub fn on_refusal(&self, ask: Ask) {
        let _ = self.ask.set(ask);
    }

    fn tokens(&self) -> Guard<'_, Tokens, KnownTokens> {
        self.tokens.lock()
    }

    /// Stores the tokens of an answer, which are concatenated. `arguments` are those of the request
    /// if it asked for extents.
    pub fn put(&self, tokens: &[u8], arguments: Option<&[u8]>) {
        for token in tokens.chunks_exact(TOKEN_BYTES).filter_map(Token::from_bytes) {
            let Some(says) = token.says() else { continue };
            let mut all = self.tokens();
            let kept = all.entry(says.set);
            match (says.rights, arguments) {
                (Rights::Read, Some(arguments)) => kept.read = Some((token, arguments.to_vec())),
                (Rights::Read, None) => {}
                (Rights::Write | Rights::Everything, _) => kept.write = Some(token),
            }
        }
    }
}

impl Credentials for CapabilityCache {
    fn token(&self, file: TargetFile, changes: bool) -> Option<Token> {
        let tokens = self.tokens();
        let kept = tokens.get(set_of(file)?)?;
        let read = kept.read.as_ref().map(|(token, _)| *token);
        if changes { kept.write } else { read.or(kept.write) }
    }

    fn renew(&self, file: TargetFile, changes: bool, refused: Option<Token>) -> Option<Token> {
        let another = || self.token(file, changes).filter(|token| Some(*token) != refused);
        let _one_at_a_time = self.asking.lock();
        // Another thread renewed it meanwhile.
        if let Some(token) = another() {
            return Some(token);
        }
        let arguments = self.tokens().get(set_of(file)?).and_then(|kept| kept.read.clone()).filter(|_| !changes);
        self.ask.get()?(arguments.as_ref().map(|(_, arguments)| &arguments[..]));
        another()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::{Capability, ClusterKey};
    use plan::Position;
    use plan::SessionId;
    use std::sync::Arc;

    fn chunk(set: u64) -> TargetFile {
        TargetFile::Chunk { set: SetId(set), position: Position(0) }
    }

    fn token(set: u64, rights: Rights, expires_ms: u64) -> Token {
        let set = SetId(set);
        ClusterKey::new(&[3; 32]).sign(&Capability { volume: [1; 16], set, rights, session: SessionId(1), expires_ms })
    }

    #[test]
    fn a_token_is_shown_for_its_set_and_what_it_permits() {
        let capabilities = CapabilityCache::default();
        let (read, write) = (token(1, Rights::Read, 5), token(2, Rights::Write, 5));
        capabilities.put(&[read.as_bytes(), write.as_bytes(), &[1, 2]].concat(), Some(b"args"));
        assert_eq!((capabilities.token(chunk(1), false), capabilities.token(chunk(1), true)), (Some(read), None));
        assert_eq!(
            (capabilities.token(chunk(2), false), capabilities.token(chunk(2), true)),
            (Some(write), Some(write))
        );
        assert_eq!((capabilities.token(chunk(3), false), capabilities.token(TargetFile::Label, false)), (None, None));
    }

    #[test]
    fn what_is_refused_is_asked_for_again_as_it_was_had() {
        let capabilities = Arc::new(CapabilityCache::default());
        capabilities.put(token(1, Rights::Read, 5).as_bytes(), Some(b"args"));
        capabilities.put(token(2, Rights::Write, 5).as_bytes(), None);
        let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (weak, log) = (Arc::downgrade(&capabilities), asked.clone());
        capabilities.on_refusal(Box::new(move |arguments| {
            log.lock().unwrap().push(arguments.map(<[u8]>::to_vec));
            let capabilities = weak.upgrade().unwrap();
            match arguments {
                Some(arguments) => capabilities.put(token(1, Rights::Read, 9).as_bytes(), Some(arguments)),
                None => capabilities.put(token(2, Rights::Write, 9).as_bytes(), None),
            }
        }));
        let renewed = capabilities.renew(chunk(1), false, Some(token(1, Rights::Read, 5)));
        assert_eq!(renewed, Some(token(1, Rights::Read, 9)));
        assert_eq!(
            capabilities.renew(chunk(2), true, Some(token(2, Rights::Write, 5))),
            Some(token(2, Rights::Write, 9))
        );
        // Another thread renewed it already.
        assert_eq!(
            capabilities.renew(chunk(2), true, Some(token(2, Rights::Write, 5))),
            Some(token(2, Rights::Write, 9))
        );
        // There is no newer one.
        assert_eq!(capabilities.renew(chunk(2), true, Some(token(2, Rights::Write, 9))), None);
        let asked = asked.lock().unwrap();
        assert_eq!(*asked, [Some(b"args".to_vec()), None, None]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_used_stays() {
        let capabilities = CapabilityCache::default();
        for set in 0..5 * MAX_RECENT_SETS as u64 {
            capabilities.put(token(set + 1, Rights::Read, 1).as_bytes(), Some(b"a"));
            if set % 1000 == 0 {
                capabilities.put(token(0, Rights::Write, 1).as_bytes(), None);
            }
        }
        let tokens = capabilities.tokens();
        assert!(tokens.new.len() + tokens.old.len() <= 2 * MAX_RECENT_SETS);
        drop(tokens);
        assert!(capabilities.token(chunk(0), true).is_some() && capabilities.token(chunk(1), false).is_none());
    }
}
