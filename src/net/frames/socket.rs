//! Ethernet frames through an `AF_PACKET` socket, under tokio.
//!
//! One socket serves several interfaces: its filter names them, and the address of each frame names
//! its own. A socket that is bound to none sees no error when a link goes down or a device is
//! deleted; only a frame sent there does.
#![allow(
    unsafe_code,
    reason = "nobody has a safe form of sockaddr_ll, of a received buffer and of PACKET_STATISTICS"
)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockFilter, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::net::buffers::set_receive_buffer;

/// Longer than any ARP, Neighbor Solicitation or Advertisement frame; the rest is cut off.
const FRAME_MAX: usize = 512;

/// Room for the frames of a busy segment while this process waits for its turn on the CPU: the kernel
/// doubles it, and counts a KiB or more for a frame.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The most interfaces that a filter names; with more, frames of all are received: a jump of a filter goes no
/// further.
const INTERFACES_MAX: usize = 255;

/// A failure to open, read or write a packet socket.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The process may not open packet sockets.
    #[error("no permission to open a packet socket: the speaker needs CAP_NET_RAW")]
    Permission,
    /// The socket could not be opened.
    #[error("cannot open a packet socket")]
    Open(#[source] io::Error),
    /// It cannot be said from which interfaces to receive.
    #[error("cannot set the filter of a packet socket")]
    Filter(#[source] io::Error),
    /// A frame was not sent: the link is down, or gone, or its queue is full.
    #[error("cannot send a frame")]
    Send(#[source] io::Error),
    /// The socket cannot be read.
    #[error("cannot read from the packet socket")]
    Receive(#[source] io::Error),
}

/// The kind of frames that a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// ARP packets.
    Arp,
    /// IPv6 Neighbor Solicitations and Advertisements.
    Ndp,
}

impl PacketKind {
    /// The `EtherType`, in host order.
    const fn ether_type(self) -> u16 {
        match self {
            Self::Arp => 0x0806,
            Self::Ndp => 0x86dd,
        }
    }
}

/// The part of these frames that a socket receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// Questions and answers.
    All,
    /// ARP replies and Neighbor Advertisements: of a storm mostly nothing.
    Answers,
}

/// The frames that arrived since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// The number of frames that were put into the queue.
    pub queued: u32,
    /// The number of frames that were dropped because the queue was full.
    pub dropped: u32,
}

/// A frame as it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// The index of the interface.
    pub index: u32,
    /// The frame, from its Ethernet header on.
    pub frame: &'a [u8],
}

/// A packet socket for one kind of frame.
#[derive(Debug)]
pub struct PacketSocket {
    socket: AsyncFd<Socket>,
    kind: PacketKind,
    sought: Sought,
}

impl PacketSocket {
    /// Opens the socket in the network namespace of the calling thread. It receives nothing before
    /// [`Self::attend`].
    pub fn open(kind: PacketKind, sought: Sought) -> Result<Self, PacketError> {
        // Protocol 0 receives nothing until the filter is in place and bind names the protocol.
        let socket =
            Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0))).map_err(|error| {
                match error.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => PacketError::Permission,
                    _ => PacketError::Open(error),
                }
            })?;
        socket.set_nonblocking(true).map_err(PacketError::Open)?;
        socket.attach_filter(&filter(kind, sought, &[])).map_err(PacketError::Open)?;
        set_receive_buffer(&socket, RECEIVE_BUFFER).map_err(PacketError::Open)?;
        socket.bind(&link_address(kind.ether_type(), 0, None)).map_err(PacketError::Open)?;
        // SAFETY: a Socket owns its descriptor and keeps it open, and the same, until it is dropped.
        let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }
            .map_err(|error| PacketError::Open(error.into()))?;
        Ok(Self { socket, kind, sought })
    }

    /// Receives from exactly these interfaces from now on. What waits already stays.
    pub fn attend(&self, indices: &[u32]) -> Result<(), PacketError> {
        let filter = filter(self.kind, self.sought, indices);
        self.socket.get_ref().attach_filter(&filter).map_err(PacketError::Filter)
    }

    /// Counts the frames that arrived since the last call. A caller that then receives that many has received all
    /// that arrived before this call, however fast others arrive.
    pub fn arrived(&self) -> Result<Arrived, PacketError> {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length =
            libc::socklen_t::try_from(size_of::<libc::tpacket_stats>()).unwrap_or_default();
        // SAFETY: the descriptor is open, and the kernel writes at most `length` bytes into
        // `statistics`, which it has.
        let result = unsafe {
            libc::getsockopt(
                self.socket.get_ref().as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(PacketError::Receive(io::Error::last_os_error()));
        }
        // The kernel counts what it dropped among the packets (packet(7)).
        let dropped = statistics.tp_drops;
        Ok(Arrived { queued: statistics.tp_packets.saturating_sub(dropped), dropped })
    }

    /// Sends a frame, from its Ethernet header on, at once; a full queue is an error.
    pub fn send(&self, index: u32, frame: &[u8]) -> Result<(), PacketError> {
        let destination = frame.first_chunk::<6>().copied();
        let address = link_address(self.kind.ether_type(), index, destination);
        self.socket.get_ref().send_to(frame, &address).map(drop).map_err(PacketError::Send)
    }

    /// Waits until there is something to receive.
    pub async fn readable(&self) -> Result<(), PacketError> {
        // The readiness stays until `receive` finds the socket empty.
        self.socket
            .readable()
            .await
            .map(|mut guard| guard.retain_ready())
            .map_err(PacketError::Receive)
    }

    /// Waits until something has arrived since the last call. For callers that then read by
    /// [`Self::receive_now`] all that [`Self::arrived`] says.
    pub async fn arrival(&self) -> Result<(), PacketError> {
        self.socket
            .readable()
            .await
            .map(|mut guard| guard.clear_ready())
            .map_err(PacketError::Receive)
    }

    /// The next frame that is waiting, into `buffer`; `None` when none is, as the kernel says, not
    /// as the runtime has heard of it.
    pub fn receive_now<'a>(
        &self,
        buffer: &'a mut FrameBuffer,
    ) -> Result<Option<Received<'a>>, PacketError> {
        Self::receive_by(buffer, |room| self.socket.get_ref().recv_from(room))
    }

    /// The next frame that is waiting, into `buffer`; `None` when none is.
    pub fn receive<'a>(
        &self,
        buffer: &'a mut FrameBuffer,
    ) -> Result<Option<Received<'a>>, PacketError> {
        let read = |room: &mut Room| {
            self.socket.try_io(Interest::READABLE, |socket| socket.recv_from(room))
        };
        Self::receive_by(buffer, read)
    }

    fn receive_by(
        buffer: &mut FrameBuffer,
        read: impl Fn(&mut Room) -> io::Result<(usize, SockAddr)>,
    ) -> Result<Option<Received<'_>>, PacketError> {
        let Some((index, length)) = Self::receive_into(buffer, read)? else { return Ok(None) };
        let received = buffer.0.get(..length).map(|bytes| {
            // SAFETY: recv_from has initialised the first `length` bytes of the buffer.
            let frame = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<u8>(), length) };
            Received { index, frame }
        });
        Ok(received)
    }

    /// The interface and the length of the next frame.
    fn receive_into(
        buffer: &mut FrameBuffer,
        read: impl Fn(&mut Room) -> io::Result<(usize, SockAddr)>,
    ) -> Result<Option<(u32, usize)>, PacketError> {
        loop {
            let (length, mut address) = match read(&mut buffer.0) {
                Ok((length, address)) => (length, address.as_storage()),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(None),
                    // Errors of a link are pending errors: the socket goes on receiving.
                    Some(libc::EINTR | libc::ENETDOWN | libc::ENXIO) => continue,
                    _ if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                    _ => return Err(PacketError::Receive(error)),
                },
            };
            // SAFETY: an AF_PACKET socket fills in a sockaddr_ll, which is one of the platform's
            // sockaddr types; storage that the kernel did not fill is zeroed.
            let address = unsafe { address.view_as::<libc::sockaddr_ll>() };
            if address.sll_pkttype == libc::PACKET_OUTGOING {
                continue;
            }
            if let Ok(index) = u32::try_from(address.sll_ifindex) {
                return Ok(Some((index, length)));
            }
        }
    }
}

/// A packet socket that only sends.
#[derive(Debug)]
pub struct FrameSender(Socket);

impl FrameSender {
    /// Opens it in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        // Protocol 0 receives nothing.
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Sends a frame, from its Ethernet header on, at once; a full queue is an error.
    pub fn send(&self, index: u32, frame: &[u8]) -> io::Result<()> {
        let destination = frame.first_chunk::<6>().copied();
        let ether_type = frame.get(12..).and_then(|rest| rest.first_chunk()).copied();
        let ether_type = u16::from_be_bytes(ether_type.unwrap_or_default());
        self.0.send_to(frame, &link_address(ether_type, index, destination)).map(drop)
    }
}

/// Buffer for one frame.
#[derive(Debug)]
pub struct FrameBuffer(Room);

type Room = [MaybeUninit<u8>; FRAME_MAX];

impl Default for FrameBuffer {
    fn default() -> Self {
        Self([MaybeUninit::uninit(); FRAME_MAX])
    }
}

/// A descriptor under tokio, which says when it can be read.
pub(crate) fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd keeps its descriptor open, and the same, until it is dropped.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }.map_err(Into::into)
}

fn link_address(ether_type: u16, index: u32, destination: Option<[u8; 6]>) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: sockaddr_ll is one of the platform's sockaddr types.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = u16::try_from(libc::AF_PACKET).unwrap_or_default();
    address.sll_protocol = ether_type.to_be();
    // The kernel's indices are positive ints.
    address.sll_ifindex = i32::try_from(index).unwrap_or_default();
    if let Some(mac) = destination {
        address.sll_halen = 6;
        for (byte, octet) in address.sll_addr.iter_mut().zip(mac) {
            *byte = octet;
        }
    }
    let length = u32::try_from(size_of::<libc::sockaddr_ll>()).unwrap_or_default();
    // SAFETY: the storage holds an initialised sockaddr_ll, and `length` is its size.
    unsafe { SockAddr::new(storage, length) }
}

/// A classic BPF program: frames that this host sends never pass, nor those that a switch floods
/// although they are for another host, nor those of other interfaces; and of IPv6 only Neighbor
/// Solicitations and Advertisements directly behind the fixed header, which have to come unrouted.
fn filter(kind: PacketKind, sought: Sought, indices: &[u32]) -> Vec<SockFilter> {
    const LOAD_BYTE: u16 = 0x30; // BPF_LD | BPF_B | BPF_ABS
    const LOAD_HALF: u16 = 0x28; // BPF_LD | BPF_H | BPF_ABS
    const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const PACKET_TYPE: u32 = 0xffff_f004; // SKF_AD_OFF + SKF_AD_PKTTYPE
    const INTERFACE: u32 = 0xffff_f008; // SKF_AD_OFF + SKF_AD_IFINDEX
    const OTHER_HOST: u32 = 3; // PACKET_OTHERHOST
    const OUTGOING: u32 = 4; // PACKET_OUTGOING

    // The bytes that are looked at: EtherType and operation; EtherType, next header, hop limit and
    // type of the ICMPv6 message.
    let checks: &[(u16, u32, &[u32])] = match (kind, sought) {
        (PacketKind::Arp, Sought::All) => &[(LOAD_HALF, 12, &[0x0806])],
        (PacketKind::Arp, Sought::Answers) => &[(LOAD_HALF, 12, &[0x0806]), (LOAD_HALF, 20, &[2])],
        (PacketKind::Ndp, Sought::All) => &[
            (LOAD_HALF, 12, &[0x86dd]),
            (LOAD_BYTE, 20, &[58]),
            (LOAD_BYTE, 21, &[255]),
            (LOAD_BYTE, 54, &[135, 136]),
        ],
        (PacketKind::Ndp, Sought::Answers) => &[
            (LOAD_HALF, 12, &[0x86dd]),
            (LOAD_BYTE, 20, &[58]),
            (LOAD_BYTE, 21, &[255]),
            (LOAD_BYTE, 54, &[136]),
        ],
    };
    let refuse = || SockFilter::new(RETURN, 0, 0, 0);
    let mut program = vec![
        SockFilter::new(LOAD_BYTE, 0, 0, PACKET_TYPE),
        SockFilter::new(JUMP_EQUAL, 1, 0, OUTGOING),
        SockFilter::new(JUMP_EQUAL, 0, 1, OTHER_HOST),
        refuse(),
    ];
    let interfaces = (LOAD_WORD, INTERFACE, indices);
    let interfaces = (indices.len() <= INTERFACES_MAX).then_some(&interfaces);
    // Each check jumps over its refusal to the next.
    for &(load, offset, values) in checks.iter().chain(interfaces) {
        program.push(SockFilter::new(load, 0, 0, offset));
        let left = u8::try_from(values.len()).unwrap_or(u8::MAX);
        for (value, behind) in values.iter().zip((1..=left).rev()) {
            program.push(SockFilter::new(JUMP_EQUAL, behind, 0, *value));
        }
        program.push(refuse());
    }
    program.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    program
}
