// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed newstyle negotiation, up to the first request.

use alloc::vec::Vec;

use crate::Export;
use crate::Violation;
use crate::number::take_string;
use crate::number::take_u16;
use crate::number::take_u32;
use crate::number::take_u64;

/// Most data of one option: a name or a context has 4,096 bytes at most ("Values"), and a client
/// may ask for a few contexts.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;

const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;

/// `NBD_FLAG_FIXED_NEWSTYLE`, `NBD_FLAG_NO_ZEROES`; the client's flags have the same numbers.
const FIXED_NEWSTYLE: u16 = 1 << 0;
const NO_ZEROES: u16 = 1 << 1;

/// Zeroes behind the answer to `NBD_OPT_EXPORT_NAME` of a client that wants them.
const PADDING: usize = 124;

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const STARTTLS: u32 = 5;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const LIST_META_CONTEXT: u32 = 9;
const SET_META_CONTEXT: u32 = 10;

const REPLY_ACK: u32 = 1;
const REPLY_SERVER: u32 = 2;
const REPLY_INFO: u32 = 3;
const REPLY_META_CONTEXT: u32 = 4;
const ERROR_UNSUPPORTED: u32 = (1 << 31) | 1;
const ERROR_INVALID: u32 = (1 << 31) | 3;
const ERROR_TLS_REQUIRED: u32 = (1 << 31) | 5;
const ERROR_UNKNOWN: u32 = (1 << 31) | 6;

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_DESCRIPTION: u16 = 2;
const INFO_BLOCK_SIZE: u16 = 3;

/// The one context that there is ("Metadata querying"): what has space, and what reads as zeroes.
const ALLOCATION: &[u8] = b"base:allocation";
const NAMESPACE: &[u8] = b"base:";

/// What client and server have agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Agreed {
    /// Reads are answered in chunks that can tell of an error ("Structured replies").
    pub structured: bool,
    /// The client may ask what has space (`base:allocation`).
    pub allocation: bool,
}

impl Agreed {
    /// Before anything is agreed on.
    pub const NOTHING: Self = Self { structured: false, allocation: false };
}

/// Where the negotiation is.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // a server must treat every one
pub enum Outcome {
    /// It goes on.
    More,
    /// Requests follow.
    Begin {
        /// On these terms.
        agreed: Agreed,
        /// What has come of them already.
        rest: Vec<u8>,
    },
    /// TLS begins, when what is to be sent is sent; the negotiation goes on inside.
    StartTls,
    /// The client has left in order: what is to be sent is sent, then the connection is closed.
    End,
}

/// Whether all but a few options need TLS ("TLS support").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums)] // SELECTIVETLS and OPTIONALTLS are not for one export
pub enum Tls {
    /// NOTLS: there is none.
    Never,
    /// FORCEDTLS: nothing else is answered before.
    Forced,
}

/// A negotiation.
#[derive(Debug)]
pub struct Handshake {
    /// What has come and is not yet understood: less than one option.
    came: Vec<u8>,
    /// None: they have not come.
    client_flags: Option<u32>,
    agreed: Agreed,
    tls: Tls,
    /// TLS has begun.
    secure: bool,
}

impl Handshake {
    /// Greets the client: `out` is to be sent.
    #[must_use]
    pub fn begin(tls: Tls, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&GREETING.to_be_bytes());
        out.extend_from_slice(&OPTION.to_be_bytes());
        out.extend_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        let (client_flags, agreed) = (None, Agreed::default());
        Self { came: Vec::new(), client_flags, agreed, tls, secure: false }
    }

    /// Takes what has come. Answers are added to `out`, to be sent whatever the outcome is.
    ///
    /// # Errors
    /// The client does not speak the protocol.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        export: &Export,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Violation> {
        self.came.extend_from_slice(bytes);
        let came = core::mem::take(&mut self.came);
        let mut rest = &came[..];
        let outcome = self.understand(&mut rest, export, out)?;
        Ok(match outcome {
            Outcome::More => {
                self.came = rest.to_vec();
                Outcome::More
            }
            Outcome::Begin { agreed, .. } => Outcome::Begin { agreed, rest: rest.to_vec() },
            // The client waits for the answer. Whoever has put something in between wants it to be
            // taken for what comes inside.
            Outcome::StartTls if !rest.is_empty() => return Err(Violation::BeforeTls),
            end => end,
        })
    }

    fn understand(
        &mut self,
        rest: &mut &[u8],
        export: &Export,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Violation> {
        if self.client_flags.is_none() {
            let Some(flags) = take_u32(rest) else { return Ok(Outcome::More) };
            if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
                return Err(Violation::ClientFlags(flags));
            }
            self.client_flags = Some(flags);
        }
        loop {
            let mut ahead = *rest;
            let Some(magic) = take_u64(&mut ahead) else { return Ok(Outcome::More) };
            if magic != OPTION {
                return Err(Violation::OptionMagic(magic));
            }
            let (Some(option), Some(length)) = (take_u32(&mut ahead), take_u32(&mut ahead)) else {
                return Ok(Outcome::More);
            };
            if length > OPTION_BYTES_MAX {
                return Err(Violation::OptionLength(length));
            }
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let Some((data, behind)) = ahead.split_at_checked(length) else {
                return Ok(Outcome::More);
            };
            *rest = behind;
            if self.tls == Tls::Forced && !self.secure && self.wants_tls(option, out)? {
                continue;
            }
            match self.option(option, data, export, out)? {
                Outcome::More => {}
                end => return Ok(end),
            }
        }
    }

    /// True: the option is answered, as it may only come inside of TLS.
    fn wants_tls(&self, option: u32, out: &mut Vec<u8>) -> Result<bool, Violation> {
        match option {
            STARTTLS | ABORT => Ok(false),
            // It has no answer that says so.
            EXPORT_NAME => Err(Violation::NoTls),
            _ => {
                reply(out, option, ERROR_TLS_REQUIRED, &[b"TLS comes first"]);
                Ok(true)
            }
        }
    }

    fn option(
        &mut self,
        option: u32,
        data: &[u8],
        export: &Export,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Violation> {
        let begin = Outcome::Begin { agreed: self.agreed, rest: Vec::new() };
        match option {
            EXPORT_NAME => {
                if !export.is_called(data) {
                    return Err(Violation::NoExport);
                }
                out.extend_from_slice(&export.bytes.to_be_bytes());
                out.extend_from_slice(&export.flags(self.agreed.structured).to_be_bytes());
                if self.client_flags.unwrap_or(0) & u32::from(NO_ZEROES) == 0 {
                    out.resize(out.len() + PADDING, 0);
                }
                return Ok(begin);
            }
            ABORT => {
                reply(out, option, REPLY_ACK, &[]);
                return Ok(Outcome::End);
            }
            STARTTLS if self.tls == Tls::Forced && !self.secure && data.is_empty() => {
                self.secure = true;
                reply(out, option, REPLY_ACK, &[]);
                return Ok(Outcome::StartTls);
            }
            STARTTLS if self.tls == Tls::Forced => {
                reply(out, option, ERROR_INVALID, &[b"once, and without data"]);
            }
            LIST if data.is_empty() => {
                let name = export.name.as_bytes();
                let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
                reply(out, option, REPLY_SERVER, &[&length.to_be_bytes(), name]);
                reply(out, option, REPLY_ACK, &[]);
            }
            STRUCTURED_REPLY if data.is_empty() => {
                self.agreed.structured = true;
                reply(out, option, REPLY_ACK, &[]);
            }
            LIST_META_CONTEXT | SET_META_CONTEXT => self.contexts(option, data, export, out),
            LIST | STRUCTURED_REPLY => {
                reply(out, option, ERROR_INVALID, &[b"the option has no data"]);
            }
            INFO | GO => match wanted(data) {
                None => reply(out, option, ERROR_INVALID, &[b"malformed data"]),
                Some((name, _)) if !export.is_called(name) => {
                    let here = export.name.as_bytes();
                    reply(out, option, ERROR_UNKNOWN, &[b"there is no such export, only ", here]);
                }
                Some((_, infos)) => {
                    self.inform(option, &infos, export, out);
                    reply(out, option, REPLY_ACK, &[]);
                    if option == GO {
                        return Ok(begin);
                    }
                }
            },
            _ => reply(out, option, ERROR_UNSUPPORTED, &[]),
        }
        Ok(Outcome::More)
    }

    /// `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`. The latter forgets what an
    /// earlier one has chosen.
    fn contexts(&mut self, option: u32, data: &[u8], export: &Export, out: &mut Vec<u8>) {
        let choose = option == SET_META_CONTEXT;
        if choose {
            self.agreed.allocation = false;
        }
        let Some((name, queries)) = queries(data) else {
            return reply(out, option, ERROR_INVALID, &[b"malformed data"]);
        };
        if !self.agreed.structured {
            return reply(out, option, ERROR_INVALID, &[b"structured replies come first"]);
        }
        if !export.is_called(name) {
            return reply(out, option, ERROR_UNKNOWN, &[b"there is no such export"]);
        }
        // A namespace stands for all of its contexts, in a list.
        let meant = |query: &&[u8]| *query == ALLOCATION || !choose && *query == NAMESPACE;
        let all = queries.is_empty() && !choose;
        if export.allocation && (all || queries.iter().any(meant)) {
            self.agreed.allocation |= choose;
            let id = if choose { crate::reply::ALLOCATION_ID } else { 0 };
            reply(out, option, REPLY_META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION]);
        }
        reply(out, option, REPLY_ACK, &[]);
    }

    /// `NBD_REP_INFO`: size and flags always, the rest as it was asked for. Block sizes are told
    /// without a question, too: whoever knows them serves itself best.
    fn inform(&self, option: u32, infos: &[u16], export: &Export, out: &mut Vec<u8>) {
        let flags = export.flags(self.agreed.structured).to_be_bytes();
        let bytes = export.bytes.to_be_bytes();
        reply(out, option, REPLY_INFO, &[&INFO_EXPORT.to_be_bytes(), &bytes, &flags]);
        let sizes = [export.blocks.least, export.blocks.preferred, export.blocks.most];
        let [least, preferred, most] = sizes.map(u32::to_be_bytes);
        let number = INFO_BLOCK_SIZE.to_be_bytes();
        reply(out, option, REPLY_INFO, &[&number, &least, &preferred, &most]);
        for (info, text) in [(INFO_NAME, &export.name), (INFO_DESCRIPTION, &export.description)] {
            if infos.contains(&info) {
                reply(out, option, REPLY_INFO, &[&info.to_be_bytes(), text.as_bytes()]);
            }
        }
    }
}

/// The data of `NBD_OPT_INFO` and `NBD_OPT_GO`: a name, and what the client wants to know.
fn wanted(mut data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let name = take_string(&mut data)?;
    let count = take_u16(&mut data)?;
    if data.len() != usize::from(count) * 2 {
        return None;
    }
    let mut infos = Vec::new();
    while let Some(info) = take_u16(&mut data) {
        infos.push(info);
    }
    Some((name, infos))
}

/// The data of the options about contexts: the name of an export, and what is asked for.
fn queries(mut data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let name = take_string(&mut data)?;
    let count = take_u32(&mut data)?;
    let mut queries = Vec::new();
    for _ in 0..count {
        // Each takes four bytes at least: there are no more than fit the data.
        queries.push(take_string(&mut data)?);
    }
    data.is_empty().then_some((name, queries))
}

fn reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&OPTION_REPLY.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}
