// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The server: answers each frame.

use std::io;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::sync::Arc;

use buf::Region;
use buf::SgList;
use engine::Event;
use engine::Port;
use engine::Socket;
use engine::Token;
use engine::Work;

use crate::frame::DISK;
use crate::frame::Piece;
use crate::frame::Reader;

/// Tokens of a connection are its place, doubled, plus one for sending.
const ACCEPT: Token = Token(u64::MAX);

/// Memory behind a socket.
#[derive(Debug)]
pub(crate) struct Server<P> {
    port: P,
    disk: Arc<Region>,
    connections: Vec<Connection>,
    /// Places of those that may have something to send.
    dirty: Vec<usize>,
}

#[derive(Debug)]
struct Connection {
    socket: Socket,
    reader: Reader,
    filling: SgList,
    /// None while it is under way.
    idle: Option<SgList>,
}

impl<P: Port> Server<P> {
    pub(crate) fn new(mut port: P) -> io::Result<Self> {
        let disk = Region::new(DISK)?;
        let block = vec![0xa5; 1 << 20];
        for at in (0..DISK).step_by(block.len()) {
            disk.write(at, &block).map_err(io::Error::other)?;
        }
        let address: SocketAddr = ([127, 0, 0, 1], 0).into();
        let listener = TcpListener::from(engine::listen(address)?);
        println!("serving {}", listener.local_addr()?);
        let socket = port.add_socket(listener.into());
        port.submit(ACCEPT, Work::Accept { socket });
        Ok(Self { port, disk, connections: Vec::new(), dirty: Vec::new() })
    }

    /// Serves until it is killed.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        loop {
            while let Some((token, event)) = self.port.next_event() {
                self.dispatch(token, event)?;
            }
            for place in std::mem::take(&mut self.dirty) {
                self.flush(place);
            }
            self.port.wait(None);
        }
    }

    fn dispatch(&mut self, token: Token, event: Event) -> io::Result<()> {
        let place = usize::try_from(token.0 / 2).unwrap_or(usize::MAX);
        match event {
            Event::Accepted { connection, .. } => {
                let socket = self.port.add_socket(connection);
                let token = Token(self.connections.len() as u64 * 2);
                self.port.submit(token, Work::Receive { socket });
                let (filling, idle) = (SgList::new(), Some(SgList::new()));
                self.connections.push(Connection { socket, reader: Reader::new(), filling, idle });
            }
            Event::Received { bytes } => self.received(place, &bytes),
            Event::Sent { mut list, .. } => {
                list.clear();
                if let Some(connection) = self.connections.get_mut(place) {
                    connection.idle = Some(list);
                }
                self.dirty.push(place);
            }
            Event::ReceiveEnded { .. } => {
                if let Some(connection) = self.connections.get(place) {
                    self.port.close(connection.socket);
                }
            }
            Event::AcceptFailed { errno } => return Err(io::Error::from_raw_os_error(errno)),
            _ => {}
        }
        Ok(())
    }

    fn received(&mut self, place: usize, mut rest: &[u8]) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        while let Some(piece) = connection.reader.next(&mut rest, |frame| frame.write) {
            match piece {
                Piece::Frame(frame) if frame.write => {}
                Piece::Frame(frame) => {
                    connection.filling.push_bytes(&frame.emit());
                    if let Ok(data) = self.disk.lend(frame.offset, frame.length as usize) {
                        connection.filling.push(data);
                    }
                }
                Piece::Data { frame, at, bytes, last } => {
                    // The load asks for nothing beyond the disk; where it did, nothing is kept.
                    let _ = self.disk.write(frame.offset + at as u64, bytes);
                    if last {
                        connection.filling.push_bytes(&frame.emit());
                    }
                }
            }
        }
        self.dirty.push(place);
    }

    fn flush(&mut self, place: usize) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        if connection.filling.is_empty() {
            return;
        }
        let Some(idle) = connection.idle.take() else { return };
        let list = std::mem::replace(&mut connection.filling, idle);
        let work = Work::Send { socket: connection.socket, list };
        self.port.submit(Token(place as u64 * 2 + 1), work);
    }
}
