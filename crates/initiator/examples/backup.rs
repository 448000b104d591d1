// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a disk into a new file. What the disk has no blocks for is a hole there.
//!
//! `[BACKUP_USER=... BACKUP_SECRET=...] cargo run -p lunwire-initiator --example backup
//! iscsi://HOST/IQN/LUN FILE`
//!
//! An interrupted one goes on where it was: what is there is in FILE.part, which becomes FILE at
//! the end. Nobody may write to the disk meanwhile, also between two runs: back up a snapshot.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs::File;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use lunwire_initiator as initiator;
use lunwire_initiator::Account;
use lunwire_initiator::Cdb;
use lunwire_initiator::Config;
use lunwire_initiator::Credentials;
use lunwire_initiator::Data;
use lunwire_initiator::Disk;
use lunwire_initiator::Initiator;
use lunwire_initiator::Kind;
use lunwire_initiator::Options;
use lunwire_initiator::Retry;
use lunwire_initiator::Secret;
use lunwire_initiator::Session;
use lunwire_initiator::Url;
use lunwire_initiator::scsi::Execute;

/// Our name; access lists of targets have it.
const NAME: &str = "iqn.2026-01.com.example:backup";

/// Bytes that are read at once; whole blocks of every disk.
const PIECE: u64 = 1 << 20;

/// How often it is begun anew, besides what the session does by itself.
const ATTEMPTS: u32 = 5;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    const USAGE: &str = "usage: backup iscsi://HOST/IQN/LUN FILE";
    let mut words = std::env::args().skip(1);
    let url = Url::parse_disk(&words.next().ok_or(USAGE)?)?;
    let path = words.next().ok_or(USAGE)?;
    let part = format!("{path}.part");
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&part)?;
    let initiator = Initiator::start(&Config::default())?;
    let mut options = Options { initiator: NAME.to_owned(), ..Options::of_url(&url) };
    if let (Ok(user), Ok(secret)) = (std::env::var("BACKUP_USER"), std::env::var("BACKUP_SECRET")) {
        let own = Credentials::new(user, Secret::from_text(secret.as_bytes())?)?;
        options.account = Some(Arc::new(Account::new(own, None)?));
    }
    let mut attempt = 1;
    while let Err(error) = back_up(&initiator, options.clone(), url.lun.unwrap_or(0), &file) {
        match error.downcast_ref::<initiator::Error>() {
            Some(known) if is_worth_another(known) && attempt < ATTEMPTS => {
                eprintln!("{error}; trying again");
            }
            _ => return Err(error),
        }
        attempt += 1;
        std::thread::sleep(Duration::from_secs(2));
    }
    file.sync_all()?;
    std::fs::rename(&part, &path)?;
    Ok(())
}

/// A session comes back by itself as long as `reconnect_patience` says, and what can be repeated
/// is. What is left to try again is what may be over later; a wrong secret, another disk or a
/// medium error stay.
fn is_worth_another(error: &initiator::Error) -> bool {
    matches!(error.kind(), Kind::Unreachable { .. } | Kind::Session(_) | Kind::Ending(_))
}

/// Goes on where the file ends.
fn back_up(
    initiator: &Initiator,
    options: Options,
    lun: u16,
    file: &File,
) -> Result<(), Box<dyn Error>> {
    let session = initiator.connect(options)?;
    let disk = Disk::open(&session, lun)?;
    let (size, mut read) = (disk.size(), 0);
    // The last piece may not be whole: it is read again.
    let mut at = file.metadata()?.len() / PIECE * PIECE;
    let mut buffer = vec![0; usize::try_from(PIECE)?];
    while at < size {
        let (mapped, run) = allocation(&session, &disk, lun, at);
        let end = at.saturating_add(run.max(1)).min(size);
        if !mapped && end - at >= PIECE {
            at = if end == size { end } else { end / PIECE * PIECE };
            file.set_len(at)?;
            continue;
        }
        let length = PIECE.min(size - at);
        let piece = buffer.get_mut(..usize::try_from(length)?).unwrap_or_default();
        disk.read_at(at, piece)?;
        file.write_all_at(piece, at)?;
        (at, read) = (at + length, read + length);
    }
    println!("{size} bytes are in the file, {read} of them were read now");
    session.logout();
    Ok(())
}

/// Whether the blocks from byte `at` on have a place on the disk, and for how many bytes that holds
/// (GET LBA STATUS, SBC-3 §5.4). A disk that cannot tell has a place for all.
fn allocation(session: &Session, disk: &Disk, lun: u16, at: u64) -> (bool, u64) {
    let block = u64::from(disk.geometry().block);
    let mut cdb = [0; 16];
    cdb[0] = 0x9e;
    cdb[1] = 0x12;
    cdb[2..10].copy_from_slice(&(at / block).to_be_bytes());
    cdb[13] = 24;
    let all = (true, disk.size() - at);
    let Some(cdb) = Cdb::new(&cdb) else { return all };
    let Ok(done) = session.unit(lun).execute(cdb, Data::In(24), Retry::Always) else { return all };
    let told = done.data.as_deref().unwrap_or_default();
    let (Some(blocks), Some(status)) = (told.get(16..20), told.get(20)) else { return all };
    let blocks = u32::from_be_bytes(blocks.try_into().unwrap_or_default());
    (status & 0x0f == 0, u64::from(blocks) * block)
}
