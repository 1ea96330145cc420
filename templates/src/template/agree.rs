//! Keys of one template that have to go together.

use muster_types::ids::Mib;
use muster_types::template::{Firmware, HugePages};

use super::Settings;

/// What does not go together: the key to tell it at, the other key, and what is wrong.
pub(crate) fn disagreements(s: &Settings) -> Vec<(&'static str, &'static str, String)> {
    let mut all = Vec::new();
    let mut tell = |key, other, message: String| all.push((key, other, message));
    if s.kernel.is_none() {
        for (key, set) in [
            ("initrd", s.initrd.is_some()),
            ("kernel-args", s.kernel_args.is_some()),
        ] {
            if set {
                tell(key, "kernel", "has no meaning without 'kernel'".into());
            }
        }
    }
    if let (Some(cpus), Some(cores)) = (s.cpus, s.emulator_cores)
        && cores >= cpus
    {
        let message = format!("must be less than cpus, which is {cpus}, found {cores}");
        tell("emulator-cores", "cpus", message);
    }
    if let (Some(Some(pages)), Some(Mib(memory))) = (s.hugepages, s.memory) {
        let page = match pages {
            HugePages::Mib2 => 2,
            HugePages::Gib1 => 1024,
        };
        if memory % page != 0 {
            let message = format!(
                "must be a multiple of the {} of a page (hugepages), found {memory} MiB",
                pages.word()
            );
            tell("memory", "hugepages", message);
        }
    }
    let is_pc = |m: &String| m == "pc" || m.starts_with("pc-i440fx") || m == "isapc";
    if s.firmware == Some(Firmware::UefiSecure) && s.machine_type.as_ref().is_some_and(is_pc) {
        let message = "uefi-secure needs the machine type q35".to_owned();
        tell("firmware", "machine-type", message);
    }
    if s.firmware.unwrap_or_default() != Firmware::Bios && s.kernel.is_some() {
        let message = "a kernel is booted without firmware of its own: leave out one of both";
        tell("kernel", "firmware", message.to_owned());
    }
    all
}
