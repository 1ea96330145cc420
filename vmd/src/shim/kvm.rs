//! Whether VMs can run on KVM here, found out by making a vCPU: a device node alone says nothing (in
//! a container or a VM without nested virtualisation it is there and of no use).
#![expect(unsafe_code, reason = "ioctls of /dev/kvm have no safe wrapper")]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use muster_types::ids::NodeName;
use muster_types::request::Accel;

/// The device.
pub const DEVICE: &str = "/dev/kvm";

// linux/kvm.h: _IO(0xAE, n); each takes an integer.
const KVM_GET_API_VERSION: libc::Ioctl = 0xAE00;
const KVM_CREATE_VM: libc::Ioctl = 0xAE01;
const KVM_CREATE_VCPU: libc::Ioctl = 0xAE41;

/// The only version there ever was.
const API_VERSION: i32 = 12;

/// Why KVM is of no use.
#[derive(Debug, thiserror::Error)]
pub enum KvmError {
    /// No right to, no module, no CPU support.
    #[error("open {path}")]
    Open {
        /// The device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A call failed.
    #[error("{call} on {path}")]
    Call {
        /// The call.
        call: &'static str,
        /// The device.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Not the interface that QEMU uses.
    #[error("{path} speaks version {version} of the interface, not {API_VERSION}")]
    Version {
        /// The device.
        path: PathBuf,
        /// What it said.
        version: i32,
    },
}

/// Makes a VM with one vCPU and forgets it again.
///
/// # Errors
/// See [`KvmError`].
pub fn probe(device: &Path) -> Result<(), KvmError> {
    let path = || device.to_path_buf();
    let kvm = OpenOptions::new().read(true).write(true).open(device);
    let kvm = kvm.map_err(|source| KvmError::Open {
        path: path(),
        source,
    })?;
    let failed = |call| {
        move |source| KvmError::Call {
            call,
            path: device.to_path_buf(),
            source,
        }
    };
    let version =
        control(kvm.as_raw_fd(), KVM_GET_API_VERSION).map_err(failed("KVM_GET_API_VERSION"))?;
    if version != API_VERSION {
        return Err(KvmError::Version {
            path: path(),
            version,
        });
    }
    let vm = control(kvm.as_raw_fd(), KVM_CREATE_VM).map_err(failed("KVM_CREATE_VM"))?;
    // SAFETY: the call succeeded, so `vm` is an open descriptor that nobody else owns.
    let vm = unsafe { OwnedFd::from_raw_fd(vm) };
    let vcpu = control(vm.as_raw_fd(), KVM_CREATE_VCPU).map_err(failed("KVM_CREATE_VCPU"))?;
    // SAFETY: as above.
    drop(unsafe { OwnedFd::from_raw_fd(vcpu) });
    Ok(())
}

/// One of the calls above, with argument 0.
fn control(fd: RawFd, request: libc::Ioctl) -> io::Result<i32> {
    // SAFETY: these three requests take an integer and touch no memory of ours.
    let result = unsafe { libc::ioctl(fd, request, 0) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// How a VM is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// By KVM, else by emulation.
    pub kvm: bool,
    /// What the user should know.
    pub warning: Option<String>,
}

/// Chooses by what the template says and what the probe said (`Err`: the reason, in one line).
///
/// # Errors
/// The template insists on KVM.
pub fn choose(
    wanted: Accel,
    probed: &Result<(), String>,
    node: &NodeName,
) -> Result<Choice, String> {
    match (wanted, probed) {
        (Accel::Tcg, _) => Ok(Choice {
            kvm: false,
            warning: None,
        }),
        (Accel::Auto | Accel::Kvm, Ok(())) => Ok(Choice {
            kvm: true,
            warning: None,
        }),
        (Accel::Auto, Err(why)) => Ok(Choice {
            kvm: false,
            warning: Some(format!(
                "no KVM on {node}: {why}; the VM is emulated and slow"
            )),
        }),
        (Accel::Kvm, Err(why)) => Err(format!(
            "the template asks for KVM, which {node} has not: {why}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::chain;

    #[test]
    fn what_is_no_kvm_is_named() {
        let e = probe(Path::new("/nonexistent/kvm")).unwrap_err();
        assert!(
            chain(&e).starts_with("open /nonexistent/kvm: No such file"),
            "{}",
            chain(&e)
        );
        let e = probe(Path::new("/dev/null")).unwrap_err();
        assert!(
            chain(&e).starts_with("KVM_GET_API_VERSION on /dev/null: "),
            "{}",
            chain(&e)
        );
    }

    #[test]
    fn the_template_decides_what_a_missing_kvm_means() {
        let node = NodeName::new("n1").unwrap();
        let no = Err("open /dev/kvm: Permission denied".to_owned());
        let auto = choose(Accel::Auto, &no, &node).unwrap();
        assert!(!auto.kvm);
        assert_eq!(
            auto.warning.unwrap(),
            "no KVM on n1: open /dev/kvm: Permission denied; the VM is emulated and slow"
        );
        assert!(
            choose(Accel::Kvm, &no, &node)
                .unwrap_err()
                .contains("Permission denied")
        );
        assert_eq!(choose(Accel::Tcg, &no, &node).unwrap().warning, None);
        assert!(choose(Accel::Auto, &Ok(()), &node).unwrap().kvm);
    }
}
