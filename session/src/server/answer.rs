//! The way of a request: from its caller to the operation, in its session.

use super::handle::Handle;
use super::sessions::Sessions;
use super::volume::Volume;
use crate::caller::Caller;
use crate::port;
use crate::transport::{Answer, Grant, Recall, Request};
use ::volume::ranked::as_another_process;
use plan::SessionId;
use std::sync::{Arc, Mutex};
use std::time::Instant;

impl<V: Volume> Sessions<V> {
    /// Carries out a request of a client in this process, in its session. Its first request begins
    /// a session. May take long because it waits for other clients.
    pub fn answer(
        self: &Arc<Self>,
        session: Option<SessionId>,
        recall: &Recall,
        operation: u16,
        arguments: &[u8],
    ) -> Answer {
        let (caller, request) = (Caller::trusted(session), Request::default());
        as_another_process(|| self.answer_request(&caller, recall, operation, arguments, request)).0
    }

    /// As `answer`, for a request that may be repeated. Also returns the permissions on the chunk
    /// sets that the answer names.
    pub fn answer_request(
        self: &Arc<Self>,
        caller: &Caller,
        recall: &Recall,
        operation: u16,
        arguments: &[u8],
        request: Request,
    ) -> (Answer, Vec<Grant>) {
        let session = caller.session;
        let handle = Handle {
            sessions: self.clone(),
            session: session.unwrap_or(SessionId::NONE),
            peer: caller.peer.clone(),
            recall: recall.clone(),
            request,
            granted: Mutex::default(),
        };
        let is_heard = |session| {
            self.expire(session);
            let (mut table, now) = (self.leases().table(), Instant::now());
            table.hear(session, now)
                || matches!(operation, port::RECLAIM | port::END) && table.hear_reclaiming(session, now)
        };
        if !matches!(operation, port::BEGIN | port::ENTER) && !session.is_some_and(is_heard) {
            return (Answer::NoSession, Vec::new());
        }
        let answer = port::answer(&handle, operation, arguments)
            .or_else(|| port::answer_session(&handle, operation, arguments))
            .map_or(Answer::Unknown, Answer::Done);
        (answer, handle.granted())
    }
}
