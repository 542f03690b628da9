//! What needs a descriptor when there is none. The limit is the whole process's, so this is all
//! that happens in it.

mod loopback;

use loopback::{Loopback, SMALL, Seen, read_to_end, write};
use monolock_ring::{Errno, Reading};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn without_a_descriptor_it_stays_and_can_be_read_and_closed() {
    let mut net = Loopback::new(&SMALL);
    let (id, peer) = net.connect(0);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..limit }).expect("a limit");
    net.ring.detach(id);
    let seen = net.until(|_, event| matches!(event, Seen::DetachFailed(..)));
    setrlimit(Resource::Nofile, limit).expect("the limit as it was");
    let error = Errno(rustix::io::Errno::MFILE.raw_os_error());
    assert_eq!(seen, [Seen::DetachFailed(id, error)]);
    net.ring.read(id, Reading::Stream);
    write(&peer, b"still here");
    net.until_seen(&Seen::Received(id, b"still here".to_vec()));
    assert_eq!(net.close(id), [Seen::Closed(id)]);
    assert_eq!(read_to_end(&peer), b"");
}
