// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What [`ring`](crate::ring) takes of the machine, so that its model test can take it of loom.

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::AtomicBool;
pub(crate) use std::sync::atomic::AtomicUsize;
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::sync::atomic::fence;

/// A cell whose content is reached by address, as loom wants it.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with the address of the content; who may use it there, the caller knows.
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}
