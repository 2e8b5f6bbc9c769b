//! Reads and transactions.
//!
//! A transaction is one datagram, which the kernel carries out as a whole or not at all. It does so
//! in the caller's system call and lets it wait for other processes' transactions: the requests
//! block, and belong on a thread of their own.

use std::convert::Infallible;
use std::io;

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_netfilter::nftables::NfTablesMessage;
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
    NetfilterSubsystem,
};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::net::buffers::set_send_buffer;
use crate::net::datagram::{self, encode, messages};
use crate::net::nft::error::NfnetlinkError;

/// Room for a transaction about some ten thousand addresses.
const SEND_BUFFER: usize = 4 << 20;
/// The kernel fills up to 32 KiB of it at a time; it walks a set anew for each.
const RECEIVE_BUFFER: usize = 64 << 10;
/// `struct nfgenmsg`.
pub(super) const HEADER_LENGTH: usize = 4;

/// A message, with the family of the tables that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    family: NetfilterProtoFamily,
    content: NfTablesMessage,
}

impl Message {
    /// A message about tables of this family.
    pub const fn of(family: NetfilterProtoFamily, content: NfTablesMessage) -> Self {
        Self { family, content }
    }
}

/// Of the family `inet`, unless another is named.
impl From<NfTablesMessage> for Message {
    fn from(content: NfTablesMessage) -> Self {
        Self::of(NetfilterProtoFamily::Inet, content)
    }
}

impl From<Message> for NetfilterMessage {
    fn from(Message { family, content }: Message) -> Self {
        Self::new(NetfilterHeader::new(family, 0, 0), content)
    }
}

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The subject of the change, for the error.
    pub what: &'static str,
    /// `NLM_F_*` beside those of each request.
    pub flags: u16,
    /// The message.
    pub message: Message,
}

impl Change {
    /// Adds, in addition to what is there: a rule at the end of its chain.
    pub fn add(what: &'static str, message: impl Into<Message>) -> Self {
        let message = message.into();
        let is_rule = matches!(message.content, NfTablesMessage::NewRule(_));
        let flags = if is_rule { NLM_F_CREATE | NLM_F_APPEND } else { NLM_F_CREATE };
        Self { what, flags, message }
    }

    /// Deletes: refused where it is not there.
    pub fn delete(what: &'static str, message: impl Into<Message>) -> Self {
        Self { what, flags: 0, message: message.into() }
    }

    /// The same change of a table of this family.
    #[must_use]
    pub fn of(mut self, family: NetfilterProtoFamily) -> Self {
        self.message.family = family;
        self
    }
}

/// A connection for requests.
#[derive(Debug)]
pub struct Nfnetlink {
    socket: Socket,
    port: u32,
    sequence: u32,
}

impl Nfnetlink {
    /// Opens a connection in the network namespace of the calling thread.
    pub fn open() -> Result<Self, NfnetlinkError> {
        let open = || {
            let (socket, port) = datagram::open(NETLINK_NETFILTER)?;
            set_send_buffer(&socket, SEND_BUFFER)?;
            io::Result::Ok((socket, port))
        };
        let (socket, port) = open().map_err(NfnetlinkError::Open)?;
        Ok(Self { socket, port, sequence: 1 })
    }

    /// The port of the connection, which others see in news of its transactions.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Reads one thing; `None` where it is not there.
    pub fn get(
        &mut self,
        what: &'static str,
        message: impl Into<Message>,
    ) -> Result<Option<NfTablesMessage>, NfnetlinkError> {
        self.row(what, message.into())?.map(|row| row.decode()).transpose()
    }

    /// Checks whether the object that `message` asks for exists in a table of the family `family`; `what` names it in errors.
    pub fn has(
        &mut self,
        family: NetfilterProtoFamily,
        what: &'static str,
        message: NfTablesMessage,
    ) -> Result<bool, NfnetlinkError> {
        Ok(self.row(what, Message::of(family, message))?.is_some())
    }

    fn row(&mut self, what: &'static str, message: Message) -> Result<Option<Raw>, NfnetlinkError> {
        let sequence = self.number(1);
        self.send(&[encode(NetfilterMessage::from(message), NLM_F_REQUEST, sequence)])?;
        loop {
            let Some((_, payload)) = self.answers(sequence, 1)?.pop() else { continue };
            return match payload {
                NetlinkPayload::Error(error) if is_missing(&error) => Ok(None),
                NetlinkPayload::Error(error) => Err(NfnetlinkError::refused(what, &error)),
                NetlinkPayload::InnerMessage(row) => Ok(Some(row)),
                other => Err(unexpected(&other)),
            };
        }
    }

    /// Reads all of a kind; none where what has them is not there.
    pub fn dump(
        &mut self,
        what: &'static str,
        message: impl Into<Message>,
    ) -> Result<Vec<NfTablesMessage>, NfnetlinkError> {
        self.rows(what, message.into())?.iter().map(Raw::decode).collect()
    }

    /// Reads all of a kind, and leaves the attributes of each message to the caller.
    pub fn dump_attributes(
        &mut self,
        what: &'static str,
        message: impl Into<Message>,
    ) -> Result<Vec<Vec<u8>>, NfnetlinkError> {
        let attributes = |mut row: Raw| row.payload.split_off(HEADER_LENGTH.min(row.payload.len()));
        Ok(self.rows(what, message.into())?.into_iter().map(attributes).collect())
    }

    fn rows(&mut self, what: &'static str, message: Message) -> Result<Vec<Raw>, NfnetlinkError> {
        let mut rows = Vec::new();
        self.each_row(what, message.into(), |row| rows.push(row))?;
        Ok(rows)
    }

    fn each_row(
        &mut self,
        what: &'static str,
        message: NetfilterMessage,
        mut row: impl FnMut(Raw),
    ) -> Result<(), NfnetlinkError> {
        let sequence = self.number(1);
        self.send(&[encode(message, NLM_F_REQUEST | NLM_F_DUMP, sequence)])?;
        loop {
            for (_, payload) in self.answers(sequence, 1)? {
                match payload {
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) if is_missing(&error) => return Ok(()),
                    NetlinkPayload::Error(error) => {
                        return Err(NfnetlinkError::refused(what, &error));
                    }
                    NetlinkPayload::InnerMessage(message) => row(message),
                    other => return Err(unexpected(&other)),
                }
            }
        }
    }

    /// Reads all of a kind of another subsystem, and calls `row` with the attributes of each: there may be a million
    /// connections.
    pub fn each(
        &mut self,
        what: &'static str,
        message: NetfilterMessage,
        mut row: impl FnMut(&[u8]),
    ) -> Result<(), NfnetlinkError> {
        self.each_row(what, message, |raw| {
            row(raw.payload.get(HEADER_LENGTH..).unwrap_or_default());
        })
    }

    /// Asks for something of another subsystem to be done; returns whether what it is about was there.
    pub fn request(
        &mut self,
        what: &'static str,
        message: NetfilterMessage,
    ) -> Result<bool, NfnetlinkError> {
        let sequence = self.number(1);
        self.send(&[encode(message, NLM_F_REQUEST | NLM_F_ACK, sequence)])?;
        loop {
            let Some((_, payload)) = self.answers(sequence, 1)?.pop() else { continue };
            return match payload {
                NetlinkPayload::Error(error) if error.code.is_none() => Ok(true),
                NetlinkPayload::Error(error) if is_missing(&error) => Ok(false),
                NetlinkPayload::Error(error) => Err(NfnetlinkError::refused(what, &error)),
                other => Err(unexpected(&other)),
            };
        }
    }

    /// Carries out all of `changes`, or none.
    pub fn transact(&mut self, changes: Vec<Change>) -> Result<(), NfnetlinkError> {
        if changes.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(changes.len()).unwrap_or(u32::MAX);
        let first = self.number(count.saturating_add(2));
        let mut sequence = first;
        let mut whats = vec!["a transaction"];
        let mut batch = vec![encode(control(ControlMessage::BatchBegin), NLM_F_REQUEST, sequence)];
        for (number, change) in (1..).zip(changes) {
            sequence = sequence.wrapping_add(1);
            // Errors come for each message; an acknowledgement of the last one ends the answers.
            let ack = if number == count { NLM_F_ACK } else { 0 };
            whats.push(change.what);
            let flags = NLM_F_REQUEST | change.flags | ack;
            batch.push(encode(NetfilterMessage::from(change.message), flags, sequence));
        }
        let end = sequence.wrapping_add(1);
        batch.push(encode(control(ControlMessage::BatchEnd), NLM_F_REQUEST, end));
        self.send(&batch)?;
        loop {
            for (number, payload) in self.answers(first, count.saturating_add(1))? {
                let NetlinkPayload::Error(error) = payload else {
                    return Err(unexpected(&payload));
                };
                match error.code {
                    Some(_) => {
                        let what =
                            usize::try_from(number).ok().and_then(|number| whats.get(number));
                        let what = what.copied().unwrap_or("a transaction");
                        // Also who owns a table may keep others from changing it.
                        return Err(match error.to_io() {
                            denied if number > 0 && denied.raw_os_error() == Some(libc::EPERM) => {
                                NfnetlinkError::Refused(what, denied)
                            }
                            _ => NfnetlinkError::refused(what, &error),
                        });
                    }
                    None if number == count => return Ok(()),
                    None => {}
                }
            }
        }
    }

    /// The first of `count` sequence numbers that were not used yet.
    fn number(&mut self, count: u32) -> u32 {
        let first = self.sequence;
        self.sequence = first.wrapping_add(count);
        first
    }

    fn send(&self, messages: &[Vec<u8>]) -> Result<(), NfnetlinkError> {
        let datagram = messages.concat();
        match self.socket.send(&datagram, 0).map_err(NfnetlinkError::Silent)? {
            sent if sent == datagram.len() => Ok(()),
            sent => Err(NfnetlinkError::Unexpected(format!("{sent} bytes were taken"))),
        }
    }

    /// The next answers to the messages numbered from `first`, each with its place among them.
    fn answers(
        &self,
        first: u32,
        count: u32,
    ) -> Result<Vec<(u32, NetlinkPayload<Raw>)>, NfnetlinkError> {
        let mut datagram = Vec::with_capacity(RECEIVE_BUFFER);
        self.socket.recv(&mut datagram, 0).map_err(NfnetlinkError::Silent)?;
        let mut answers = Vec::new();
        for bytes in messages(&datagram) {
            let message = NetlinkMessage::<Raw>::deserialize(bytes)
                .map_err(|error| NfnetlinkError::Unexpected(error.to_string()))?;
            let number = message.header.sequence_number.wrapping_sub(first);
            if number < count {
                answers.push((number, message.payload));
            }
        }
        Ok(answers)
    }
}

/// A message of nfnetlink as it came.
#[derive(Debug)]
struct Raw {
    header: NetlinkHeader,
    payload: Vec<u8>,
}

impl NetlinkDeserializable for Raw {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        Ok(Self { header: *header, payload: payload.to_vec() })
    }
}

impl Raw {
    fn decode(&self) -> Result<NfTablesMessage, NfnetlinkError> {
        let message = NetfilterMessage::deserialize(&self.header, &self.payload)
            .map_err(|error| NfnetlinkError::Unexpected(error.to_string()))?;
        match message.inner {
            NetfilterMessageInner::NfTables(message) => Ok(message),
            other => Err(NfnetlinkError::Unexpected(format!("{other:?}"))),
        }
    }
}

/// The begin or the end of a batch, which says for which subsystem it is.
fn control(message: ControlMessage) -> NetfilterMessage {
    let subsystem = u8::from(NetfilterSubsystem::NfTables).into();
    NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, subsystem), message)
}

fn is_missing(error: &ErrorMessage) -> bool {
    error.to_io().raw_os_error() == Some(libc::ENOENT)
}

fn unexpected(payload: &NetlinkPayload<Raw>) -> NfnetlinkError {
    NfnetlinkError::Unexpected(format!("{payload:?}"))
}
