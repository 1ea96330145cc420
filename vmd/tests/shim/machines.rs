//! Every machine of muster-qemu's golden tests is accepted by the QEMU that is installed.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::Command;

use muster_qemu::{Accel, Fd, Machine};
use muster_vmd::shim::kvm;
use muster_vmd::shim::process::Qemu;
use muster_vmd::shim::qmp::Monitor;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::bench::{SOON, has_qemu};

#[tokio::test]
async fn qemu_takes_every_golden_machine() {
    if !has_qemu("qemu_takes_every_golden_machine") {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../qemu/testdata");
    for entry in std::fs::read_dir(root).unwrap() {
        let case = entry.unwrap().path();
        let text = std::fs::read_to_string(case.join("machine.json")).unwrap();
        let mut machine: Machine = serde_json::from_str(&text).unwrap();
        if machine.accel == Accel::Kvm && kvm::probe(Path::new(kvm::DEVICE)).is_err() {
            println!("{}: skipped, there is no KVM", case.display());
            continue;
        }
        take(&case, &mut machine).await;
    }
}

async fn take(case: &Path, machine: &mut Machine) {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir
        .path()
        .join(machine.boot_overlay.trim_start_matches('/'));
    std::fs::create_dir_all(disk.parent().unwrap()).unwrap();
    let made = Command::new("qemu-img")
        .args(["create", "-q", "-f", "qcow2"])
        .arg(&disk)
        .arg("1M")
        .status();
    assert!(made.unwrap().success());
    machine.boot_overlay = disk.display().to_string();
    let pairs: Vec<_> = (0..3).map(|_| StdUnixStream::pair().unwrap()).collect();
    let fd = |i: usize| Fd(pairs[i].1.as_raw_fd());
    (machine.qmp, machine.console) = (fd(0), fd(1));
    machine.agent = machine.agent.map(|_| fd(2));
    let inherited = [&pairs[0].1, &pairs[1].1, &pairs[2].1];
    let mut qemu = Qemu::start(Machine::PROGRAM.as_ref(), &machine.argv(), &inherited).unwrap();
    let ours = pairs[0].0.try_clone().unwrap();
    drop(pairs);
    ours.set_nonblocking(true).unwrap();
    let mut monitor = Monitor::new(UnixStream::from_std(ours).unwrap());
    if let Err(e) = monitor.greet(SOON).await {
        panic!("{}: {e}: {:?}", case.display(), qemu.last_words().await);
    }
    // QEMU may close the socket before its answer is out.
    drop(monitor.execute(&qapi_qmp::quit {}, SOON).await);
    let status = timeout(SOON, qemu.wait()).await.unwrap().unwrap();
    let words = qemu.last_words().await;
    assert!(status.success(), "{}: {status}: {words:?}", case.display());
    assert_eq!(words, Vec::<String>::new(), "{}", case.display());
}
