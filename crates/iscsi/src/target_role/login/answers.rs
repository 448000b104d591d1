// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a login says to its initiator.

use super::error::LoginError;
use crate::chap;
use crate::limits;
use alloc::vec::Vec;
use wire::iscsi::keys::TextWriter;

/// Text for the initiator, of which a part may have been sent. All texts of a login together are
/// bounded, because an initiator that never reads leaves all of them with us.
#[derive(Debug)]
pub(super) struct Answers {
    text: TextWriter,
    sent: usize,
    /// What all texts after this one may hold, bytes.
    budget: usize,
}

impl Answers {
    pub(super) const fn new() -> Self {
        Self::within(limits::LOGIN_ANSWER_LEN_MAX)
    }

    const fn within(budget: usize) -> Self {
        Self { text: TextWriter::new(budget), sent: 0, budget }
    }

    /// Appends a pair.
    pub(super) fn push(&mut self, key: &str, value: &str) -> Result<(), LoginError> {
        self.text.push(key, value).map_err(|_| LoginError::AnswerTooLong)
    }

    /// Appends a pair whose value is a number.
    pub(super) fn push_number(&mut self, key: &str, value: u64) -> Result<(), LoginError> {
        self.text.push_number(key, value).map_err(|_| LoginError::AnswerTooLong)
    }

    /// Appends a pair whose value is binary.
    pub(super) fn push_binary(
        &mut self,
        key: &str,
        value: &[u8],
        form: chap::BinaryForm,
    ) -> Result<(), LoginError> {
        let pushed = match form {
            chap::BinaryForm::Hex => self.text.push_binary_hex(key, value),
            chap::BinaryForm::Base64 => self.text.push_binary_base64(key, value),
        };
        pushed.map_err(|_| LoginError::AnswerTooLong)
    }

    /// Whether all was sent.
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.text.len()
    }

    /// The next data segment.
    pub(super) fn next_segment(&mut self) -> Vec<u8> {
        let rest = self.text.as_bytes().get(self.sent..).unwrap_or_default();
        let segment = rest.get(..limits::LOGIN_SEGMENT_LEN_MAX).unwrap_or(rest).to_vec();
        self.sent += segment.len();
        if self.is_empty() {
            *self = Self::within(self.budget - self.sent);
        }
        segment
    }
}
