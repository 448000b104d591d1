// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `lunwire shell`: an interpreter of commands to one unit, from a prompt or a script.

mod prompt;

use std::fs::File;
use std::io::BufRead;
use std::io::BufReader;
use std::io::IsTerminal;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use buf::Slice;
use engine::files::open_whole;
use engine::files::read_whole;
use initiator::Data;
use initiator::Done;
use initiator::Geometry;
use initiator::Kind;
use initiator::Ledger;
use initiator::Management;
use initiator::Request;
use initiator::Retry;
use initiator::SessionId;
use initiator::Url;
use initiator::scsi;
use wire::iscsi::Cdb;
use wire::scsi::cdb::CDB_LEN_MAX;

use self::prompt::Prompt;
use crate::args::ClientOptions;
use crate::args::SHELL_EXAMPLES;
use crate::args::ShellOptions;
use crate::client;
use crate::client::guest::Guest;
use crate::client::outfile::Outfile;
use crate::output;

/// The first words of lines, for completion.
const COMMANDS: [&str; 13] = [
    "login", "logout", "scsi", "read", "write", "flush", "reset", "segment", "repeat", "log",
    "help", "quit", "exit",
];

/// Scripts in scripts in scripts: a loop, past this.
const NESTING_MAX: u32 = 8;

/// Longest data of one command, bytes.
const DATA_MAX: u64 = 4 << 20;

/// Longest line of a script, bytes: far more than a command with the longest URL.
const LINE_LEN_MAX: u64 = 64 << 10;

/// What is said of writes that were acknowledged.
const LOST: &str = "what was written since the last flush may be lost: the target was reset, began \
                    anew, or failed to keep it; write it again";

/// What a data segment may be, bytes (RFC 7143 §13.12).
const SEGMENTS: std::ops::RangeInclusive<u32> = 512..=(1 << 24) - 1;

/// Runs a script, or what comes from standard input. A script ends with the first error; at a
/// prompt it goes on.
pub(crate) fn run(options: &ShellOptions) -> Result<()> {
    let queue = client::queue(&options.client)?;
    let client = options.client.clone();
    let mut shell = Shell { queue, client, unit: None, log: None, nesting: 0 };
    let result = match &options.script {
        Some(path) => shell.script(path),
        None if std::io::stdin().is_terminal() => shell.prompt(),
        None => shell.lines(std::io::stdin().lock(), "standard input").map(drop),
    };
    shell.logout();
    result
}

#[derive(Debug)]
struct Shell {
    queue: Guest,
    client: ClientOptions,
    unit: Option<Unit>,
    log: Option<Outfile>,
    nesting: u32,
}

/// Where commands go to.
#[derive(Debug)]
struct Unit {
    url: Url,
    session: SessionId,
    lun: u16,
    geometry: Option<Geometry>,
    /// What was written, up to a flush.
    ledger: Ledger,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Go,
    Quit,
}

impl Shell {
    fn prompt(&mut self) -> Result<()> {
        let mut prompt = Prompt::open()?;
        while let Some(line) = prompt.line()? {
            match self.command(&line) {
                Ok(Next::Go) => {}
                Ok(Next::Quit) => return Ok(()),
                Err(error) => drop(output::error(&error)),
            }
            if client::is_interrupted() {
                bail!("interrupted");
            }
        }
        Ok(())
    }

    fn script(&mut self, path: &Path) -> Result<()> {
        let name = path.display().to_string();
        let file = open_whole(path).with_context(|| match name.contains("://") {
            true => format!("{name} is no script; try: lunwire shell, and login {name} there"),
            false => format!("cannot read {name}"),
        })?;
        self.lines(BufReader::new(file), &name).map(drop)
    }

    fn lines(&mut self, mut lines: impl BufRead, name: &str) -> Result<Next> {
        for number in 1_u64.. {
            let mut line = Vec::new();
            let read = lines.by_ref().take(LINE_LEN_MAX).read_until(b'\n', &mut line);
            if read.with_context(|| format!("cannot read {name}"))? == 0 {
                break;
            }
            if line.len() as u64 >= LINE_LEN_MAX {
                bail!("{name}:{number}: the line is longer than {LINE_LEN_MAX} bytes");
            }
            let line = String::from_utf8(line)
                .with_context(|| format!("{name}:{number}: it is no text (UTF-8)"))?;
            let next = self.command(&line).with_context(|| format!("{name}:{number}"))?;
            if next == Next::Quit {
                return Ok(Next::Quit);
            }
        }
        Ok(Next::Go)
    }

    /// One line.
    fn command(&mut self, line: &str) -> Result<Next> {
        output::hide_secrets_in(line);
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((name, rest)) = words.split_first() else { return Ok(Next::Go) };
        let begin = Instant::now();
        let result = match (*name, rest) {
            ("login", [url]) => self.login(url),
            ("logout", []) => {
                self.logout();
                Ok(())
            }
            ("scsi", [_, ..]) => self.scsi(rest),
            ("read", [block, count]) => self.read(block, count, &[]),
            ("read", [block, count, file @ ..]) if is_file(file) => self.read(block, count, file),
            ("write", [block, count]) => self.write(block, count, None),
            ("write", [block, count, file]) => self.write(block, count, Some(file)),
            ("flush", []) => self.flush(),
            ("reset", [what]) => self.reset(what),
            ("segment", [length]) => self.segment(length),
            ("repeat", [count, file]) => return self.repeat(count, file),
            ("log", file) if !file.is_empty() && is_file(file) => return self.open_log(file),
            ("help", []) => {
                output::line(SHELL_EXAMPLES);
                return Ok(Next::Go);
            }
            ("quit" | "exit", []) => return Ok(Next::Quit),
            _ => {
                let line = output::masked(line.trim());
                bail!("{line}: unknown, or with the wrong number of words; try: help")
            }
        };
        // What comes next may be waited for without an end.
        client::leaving::note_doubt(&self.queue);
        self.note(line.trim(), begin, result.is_ok())?;
        result.map(|()| Next::Go)
    }

    fn note(&mut self, line: &str, begin: Instant, good: bool) -> Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let took = begin.elapsed().as_micros();
        let outcome = if good { "good" } else { "failed" };
        // The URL may hold a secret.
        let line = if line.starts_with("login") { "login" } else { line };
        log.write(format!("{took}\t{outcome}\t{line}\n").as_bytes())
    }

    fn open_log(&mut self, words: &[&str]) -> Result<Next> {
        // It may be the same again.
        self.log = None;
        self.log = outfile(words)?;
        Ok(Next::Go)
    }

    fn repeat(&mut self, count: &str, path: &str) -> Result<Next> {
        let count: u64 = count.parse().map_err(|_| anyhow!("repeat {count}: no number"))?;
        if self.nesting >= NESTING_MAX {
            bail!("repeat {path}: scripts are nested too deep");
        }
        self.nesting += 1;
        let result = (0..count).try_for_each(|_| self.script(Path::new(path)));
        self.nesting -= 1;
        result.map(|()| Next::Go)
    }

    fn login(&mut self, text: &str) -> Result<()> {
        self.logout();
        let url = client::disk_url(text)?;
        let session = client::login(&mut self.queue, &self.client, &url)?;
        let lun = url.lun.unwrap_or(0);
        // A new nexus has unit attentions; they are of no interest to who has just come.
        let unit = &mut self.queue.unit(session, lun);
        let _ = scsi::test_unit_ready(unit);
        // So that no command goes to another disk after a reconnect.
        let _ = scsi::identify(unit);
        output::line(format!("logged in to {url}"));
        let ledger = Ledger::default();
        self.unit = Some(Unit { url, session, lun, geometry: None, ledger });
        Ok(())
    }

    fn logout(&mut self) {
        if let Some(unit) = self.unit.take() {
            self.queue.logout(unit.session);
        }
    }

    /// A command descriptor block in hex, then `in N`, `out FILE` or nothing.
    fn scsi(&mut self, words: &[&str]) -> Result<()> {
        let at = words.iter().position(|word| matches!(*word, "in" | "out"));
        let (hex, tail) = words.split_at(at.unwrap_or(words.len()));
        let cdb = parse_cdb(hex)?;
        let data = match tail {
            [] => Data::None,
            ["in", length] => {
                let length = client::size("in", length)?;
                if length > DATA_MAX {
                    bail!("in {length}: at most {DATA_MAX} bytes go with one command");
                }
                Data::In(u32::try_from(length).unwrap_or(0))
            }
            ["out", file] => {
                let bytes = read_whole(file.as_ref(), DATA_MAX)
                    .with_context(|| format!("out {file}: cannot read what goes with a command"))?;
                Data::Out(Slice::from(bytes))
            }
            _ => bail!("scsi: in N or out FILE is right behind the bytes"),
        };
        let (session, lun) = self.place()?;
        let writes = matches!(data, Data::Out(_));
        let request = Request { lun, cdb, data, retry: Retry::Never };
        match self.queue.execute(session, request) {
            Ok(done) => {
                let heard = if writes { self.wrote(&done) } else { self.heard(&done) };
                output::line("GOOD");
                if let Some(data) = done.data {
                    dump(&data);
                }
                heard
            }
            Err(error) => {
                if let Kind::Status { raw, .. } = error.kind()
                    && !raw.is_empty()
                {
                    output::line("sense data:");
                    dump(raw);
                }
                if let (Kind::OtherDisk { .. }, Some(unit)) = (error.kind(), &self.unit) {
                    return Err(client::advised(error, &unit.url));
                }
                Err(error.into())
            }
        }
    }

    fn read(&mut self, block: &str, count: &str, file: &[&str]) -> Result<()> {
        let (lba, blocks, geometry) = self.range(block, count)?;
        let (session, lun) = self.place()?;
        let mut sink = outfile(file)?;
        for (lba, blocks) in geometry.split(lba, blocks) {
            let cdb = geometry.read(lba, blocks);
            let data = Data::In(blocks * geometry.block);
            let request = Request { lun, cdb, data, retry: Retry::Always };
            let done = self.queue.execute(session, request)?;
            self.heard(&done)?;
            let data = done.data.with_context(|| {
                format!("the target returned no data for {blocks} blocks at block {lba}")
            })?;
            match &mut sink {
                Some(sink) => sink.write(&data)?,
                None => dump(&data),
            }
        }
        Ok(())
    }

    fn write(&mut self, block: &str, count: &str, file: Option<&str>) -> Result<()> {
        let (lba, blocks, geometry) = self.range(block, count)?;
        let (session, lun) = self.place()?;
        let length = usize::try_from(blocks * u64::from(geometry.block)).unwrap_or(usize::MAX);
        let bytes = match file {
            Some(path) => {
                let mut bytes = Vec::new();
                File::open(path)
                    .and_then(|file| file.take(length as u64).read_to_end(&mut bytes))
                    .with_context(|| format!("cannot read {path}"))?;
                if bytes.len() < length {
                    bail!("{path} has {} bytes, {length} are needed", bytes.len());
                }
                bytes
            }
            None => vec![0; length],
        };
        let (bytes, mut at) = (Slice::from(bytes), 0);
        for (lba, blocks) in geometry.split(lba, blocks) {
            let length = blocks as usize * geometry.block as usize;
            let part = bytes.part(at..at + length).context("the file is too short")?;
            at += length;
            let cdb = geometry.write(lba, blocks);
            let request = Request { lun, cdb, data: Data::Out(part), retry: Retry::Always };
            let done = self.queue.execute(session, request)?;
            self.wrote(&done)?;
        }
        Ok(())
    }

    /// A write has ended well.
    fn wrote(&mut self, done: &Done) -> Result<()> {
        let heard = self.heard(done);
        if let Some(unit) = &mut self.unit {
            unit.ledger.wrote(done.generation);
        }
        heard
    }

    /// A command has ended well. Fails if the disk has told in its place that an earlier write has
    /// failed: once, as of any loss, and then what was written before is no longer asked after.
    fn heard(&mut self, done: &Done) -> Result<()> {
        let Some(unit) = &mut self.unit else { return Ok(()) };
        if unit.ledger.has_failed(done.generation) {
            unit.ledger.forget();
            bail!(LOST);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let unit = self.unit.as_mut().context("not logged in; try: login URL")?;
        let queue = &mut self.queue.unit(unit.session, unit.lun);
        match scsi::flush_writes(queue, unit.geometry.as_ref(), &mut unit.ledger) {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), Kind::WritesLost) => {
                unit.ledger.forget();
                bail!(LOST)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Resets the unit, or the whole target.
    fn reset(&mut self, what: &str) -> Result<()> {
        let (session, lun) = self.place()?;
        let management = match what {
            "unit" => Management::LogicalUnitReset(lun),
            "target" => Management::TargetWarmReset,
            _ => bail!("reset {what}: unit or target"),
        };
        Ok(self.queue.manage(session, management)?)
    }

    /// Declares the longest data segment that this side takes anew.
    fn segment(&mut self, length: &str) -> Result<()> {
        let bytes = client::size("segment", length)?;
        let bytes = u32::try_from(bytes).ok().filter(|bytes| SEGMENTS.contains(bytes));
        let bytes = bytes.with_context(|| {
            format!("segment {length}: from {} to {} bytes", SEGMENTS.start(), SEGMENTS.end())
        })?;
        let (session, _) = self.place()?;
        Ok(self.queue.resize_segments(session, bytes)?)
    }

    fn place(&self) -> Result<(SessionId, u16)> {
        let unit = self.unit.as_ref().context("not logged in; try: login URL")?;
        Ok((unit.session, unit.lun))
    }

    /// A range of blocks that lies on the disk.
    fn range(&mut self, block: &str, count: &str) -> Result<(u64, u64, Geometry)> {
        let lba: u64 = block.parse().map_err(|_| anyhow!("{block}: no block number"))?;
        let blocks: u64 = count.parse().map_err(|_| anyhow!("{count}: no number of blocks"))?;
        let unit = self.unit.as_mut().context("not logged in; try: login URL")?;
        let geometry = match unit.geometry {
            Some(geometry) => geometry,
            None => {
                let found = scsi::geometry(&mut self.queue.unit(unit.session, unit.lun))
                    .map_err(|error| client::advised(error, &unit.url))?;
                *unit.geometry.insert(found)
            }
        };
        let end = lba.saturating_add(blocks);
        if end > geometry.blocks {
            bail!("the range ends at block {end}, the disk at block {}", geometry.blocks);
        }
        Ok((lba, blocks, geometry))
    }
}

/// The word that lets a file be overwritten, behind its name.
const OVERWRITE: &str = "--overwrite";

/// Whether `words` name a file that is to be written.
fn is_file(words: &[&str]) -> bool {
    matches!(words, [_] | [_, OVERWRITE])
}

/// The file that `words` name; None without a name.
fn outfile(words: &[&str]) -> Result<Option<Outfile>> {
    match words {
        [] => Ok(None),
        [path, OVERWRITE] => Outfile::open(Path::new(path)).map(Some),
        [path, ..] => Outfile::open_empty(Path::new(path)).map(Some),
    }
}

/// 6 to 32 bytes in hex.
fn parse_cdb(words: &[&str]) -> Result<Cdb> {
    let bytes: Vec<u8> = words
        .iter()
        .map(|word| {
            let byte = u8::from_str_radix(word.trim_start_matches("0x"), 16);
            byte.map_err(|_| anyhow!("{word}: no byte in hex"))
        })
        .collect::<Result<_>>()?;
    let cdb = Some(bytes).filter(|bytes| bytes.len() >= 6).and_then(|bytes| Cdb::new(&bytes));
    cdb.with_context(|| format!("a command has 6 to {CDB_LEN_MAX} bytes, here are {}", words.len()))
}

/// Sixteen bytes a line, in hex and as text.
fn dump(bytes: &[u8]) {
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = chunk
            .iter()
            .map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' })
            .collect();
        output::line(format!("{:08x}  {:<47}  {text}", line * 16, hex.join(" ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_bytes_in_hex() {
        let words: Vec<&str> = "12 00 0x00 0 60 00".split(' ').collect();
        let cdb = parse_cdb(&words).expect("a legal command");
        assert_eq!((&cdb.bytes[..6], cdb.len), (&[0x12, 0, 0, 0, 0x60, 0][..], 16));
        assert!(parse_cdb(&["12"]).is_err());
        assert!(parse_cdb(&["12", "zz", "0", "0", "0", "0"]).is_err());
    }
}
