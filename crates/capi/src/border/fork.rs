// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forks of the program, which a child hears of before anything else of it runs.

use std::ffi::c_int;
use std::sync::Once;

use crate::handles;

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
}

/// From now on. To ask for the number of the process takes longer than all else that a look-up
/// does.
pub(crate) fn hear_of_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: `in_child` stays where it is (`-z nodelete`), and does no more than a child of a
        // program with threads may. If there is no memory for it, children are on their own.
        let _ = unsafe { pthread_atfork(None, None, Some(in_child)) };
    });
}

unsafe extern "C" fn in_child() {
    handles::forked();
}
