//! Requests of a client to a metadata server: each is the number of an operation, the length of its
//! arguments in two bytes, little-endian, and these. All go to one volume, in one session.
#![no_main]

mod server;

use server::Client;
use session::port::BEGIN;
use session::transport::Call;
use std::cell::RefCell;

/// Takes a lock; the last byte of its arguments says whether to wait for it.
const LOCK: u16 = 74;

thread_local! {
    static CLIENT: RefCell<Client> = RefCell::new(Client::new());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    CLIENT.with_borrow_mut(|client| {
        let mut rest = bytes;
        while let [operation, low, high, after @ ..] = rest {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            let (arguments, behind) = after.split_at(length.min(after.len()));
            rest = behind;
            let (operation, mut arguments) = (u16::from(*operation), arguments.to_vec());
            if operation == LOCK
                && let Some(wait) = arguments.last_mut()
            {
                *wait = 0;
            }
            if operation != BEGIN && client.call(operation, &arguments).is_err() {
                // It ended its session.
                *client = client.begin();
            }
        }
        client.check();
    });
});
