// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Logins that end when nobody wants them any more.

use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Wake;
use std::task::Waker;
use std::thread;
use std::thread::Thread;
use std::time::Duration;

use initiator::Error;
use initiator::Login;
use initiator::Session;

use super::leaving;

/// How soon it is noticed that nobody wants it any more.
const LOOK: Duration = Duration::from_millis(100);

/// What comes of `login`; None: it is given up. Nothing was written over it yet, so that nobody has
/// to wait for an end of it.
pub(crate) fn unless_given_up(login: Login) -> Option<Result<Session, Error>> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut login = pin!(login);
    loop {
        if let Poll::Ready(session) = login.as_mut().poll(&mut context) {
            return Some(session);
        }
        if leaving::is_given_up() {
            return None;
        }
        thread::park_timeout(LOOK);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
