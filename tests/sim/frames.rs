//! The judge's own reading of the protocol, byte by byte and from the specification alone.

/// What a client said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Acquire {
        lock: String,
        lease_ms: u32,
    },
    Heartbeat,
    /// Something wrong, and the code that it must be answered with.
    Wrong(u8),
}

/// What a server answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Waiting,
    Acquired(u64),
    Error(u8),
    Nonsense,
}

/// One connection's bytes towards the server.
#[derive(Default)]
pub(crate) struct ClientStream {
    first_frame: Vec<u8>,
    has_claimed: bool,
}

impl ClientStream {
    /// What is said by one byte more, if it completes something.
    pub(crate) fn hear(&mut self, byte: u8, lease_max_ms: Option<u32>) -> Option<Said> {
        if self.has_claimed {
            return Some(match byte {
                0x01 => Said::Wrong(0x12),
                0x02 => Said::Heartbeat,
                _ => Said::Wrong(0x13),
            });
        }
        self.first_frame.push(byte);
        let said = self.first(lease_max_ms);
        self.has_claimed = matches!(said, Some(Said::Acquire { .. }));
        said
    }

    fn first(&self, lease_max_ms: Option<u32>) -> Option<Said> {
        let frame = &self.first_frame[..];
        match frame[0] {
            0x01 => {}
            0x02 => return Some(Said::Wrong(0x11)),
            _ => return Some(Said::Wrong(0x13)),
        }
        if *frame.get(1)? != 1 {
            return Some(Said::Wrong(0x10));
        }
        let header: [u8; 8] = frame.get(..8)?.try_into().expect("eight bytes");
        let [_, _, a, b, c, d, high, low] = header;
        let (lease_ms, len) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([high, low]));
        if len == 0 || len > 255 {
            return Some(Said::Wrong(if len == 0 { 0x14 } else { 0x15 }));
        }
        let name = frame.get(8..8 + usize::from(len))?;
        Some(match String::from_utf8(name.to_vec()) {
            Err(_) => Said::Wrong(0x16),
            Ok(_) if lease_ms == 0 => Said::Wrong(0x17),
            Ok(_) if lease_max_ms.is_some_and(|max| lease_ms > max) => Said::Wrong(0x19),
            Ok(lock) => Said::Acquire { lock, lease_ms },
        })
    }
}

/// One connection's bytes towards the client.
#[derive(Default)]
pub(crate) struct ServerStream {
    unread: Vec<u8>,
}

impl ServerStream {
    /// The answers that these bytes complete.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> Vec<Answered> {
        self.unread.extend_from_slice(bytes);
        std::iter::from_fn(|| self.next()).collect()
    }

    /// Whether it ends between two answers.
    pub(crate) fn is_whole(&self) -> bool {
        self.unread.is_empty()
    }

    fn next(&mut self) -> Option<Answered> {
        let (answer, len) = match *self.unread.first()? {
            0x11 => (Answered::Waiting, 1),
            0x12 => {
                let token: [u8; 8] = self.unread.get(1..9)?.try_into().expect("eight bytes");
                (Answered::Acquired(u64::from_be_bytes(token)), 9)
            }
            0x13 => {
                let len = 3 + usize::from(*self.unread.get(2)?);
                (Answered::Error(*self.unread.get(1)?), self.unread.get(..len)?.len())
            }
            _ => (Answered::Nonsense, self.unread.len()),
        };
        self.unread.drain(..len);
        Some(answer)
    }
}
