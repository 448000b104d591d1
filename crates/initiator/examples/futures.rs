// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a disk by futures, many at a time, without any runtime: one thread polls them all, and
//! sleeps while none can go on. A runtime (tokio, smol, embassy) takes its place in real programs.
//!
//! `cargo run -p lunwire-initiator --example futures iscsi://HOST/IQN/LUN`
#![forbid(unsafe_code)]

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Wake;
use std::task::Waker;
use std::thread::Thread;

use lunwire_initiator as initiator;
use lunwire_initiator::Config;
use lunwire_initiator::Disk;
use lunwire_initiator::Initiator;
use lunwire_initiator::Options;
use lunwire_initiator::Url;

/// Futures that are polled at a time.
const DEPTH: u64 = 16;

/// Bytes of each read; whole blocks of every disk.
const PIECE: u64 = 64 << 10;

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
    let url =
        Url::parse_disk(&std::env::args().nth(1).ok_or("usage: futures iscsi://HOST/IQN/LUN")?)?;
    let initiator = Initiator::start(&Config::default())?;
    // A login and the opening of a disk are futures, too.
    let counts = block_on(vec![async move {
        let session = initiator.begin(Options::of_url(&url)).await?;
        let disk = Disk::begin(&session, url.lun.unwrap_or(0)).await?;
        println!("{} bytes in blocks of {}", disk.size(), disk.geometry().block);
        Ok::<Disk, initiator::Error>(disk)
    }]);
    for disk in counts {
        let disk = disk?;
        let readers = (0..DEPTH).map(|first| read_every(disk.clone(), first)).collect();
        let counts: Result<Vec<u64>, _> = block_on(readers).into_iter().collect();
        println!("read {} bytes by {DEPTH} futures", counts?.iter().sum::<u64>());
    }
    Ok(())
}

/// Reads piece `first` of each `DEPTH` pieces, one after the other; gives how many bytes that was.
async fn read_every(disk: Disk, first: u64) -> Result<u64, initiator::Error> {
    let (mut at, mut read) = (first * PIECE, 0);
    while at < disk.size() {
        let length = PIECE.min(disk.size() - at);
        read += disk.read(at, length)?.await?.bytes() as u64;
        at += DEPTH * PIECE;
    }
    Ok(read)
}

/// Polls all until each has ended.
fn block_on<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut ended: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    while ended.iter().any(Option::is_none) {
        for (future, end) in futures.iter_mut().zip(&mut ended) {
            if end.is_none()
                && let Poll::Ready(output) = future.as_mut().poll(&mut context)
            {
                *end = Some(output);
            }
        }
        if ended.iter().any(Option::is_none) {
            std::thread::park();
        }
    }
    ended.into_iter().flatten().collect()
}

/// Wakes the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
