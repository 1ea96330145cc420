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
                "must be a multiple of {}, the page size of hugepages, found {memory}M",
                pages.word()
            );
            tell("memory", "hugepages", message);
        }
    }
    let is_pc =
        |m: &&String| m.as_str() == "pc" || m.starts_with("pc-i440fx") || m.as_str() == "isapc";
    if s.firmware == Some(Firmware::UefiSecure)
        && let Some(machine) = s.machine_type.as_ref().filter(is_pc)
    {
        let message = format!("uefi-secure needs the machine type q35, found {machine}");
        tell("firmware", "machine-type", message);
    }
    let firmware = s.firmware.unwrap_or_default();
    if firmware != Firmware::Bios && s.kernel.is_some() {
        let message = format!("is booted by bios only, found the firmware {firmware}");
        tell("kernel", "firmware", message);
    }
    all
}
