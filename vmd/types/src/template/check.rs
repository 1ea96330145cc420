//! The limits of a template's values: the same for a file of the user's and for a forged request.

use super::{
    Gpus, MAX_DEVICES, MAX_INLINE_USER_DATA, MAX_VCPUS, RANK, Ready, TemplateSpec, UserData, Users,
};
use crate::ids::{Mib, shown};
use crate::image::{ImageRef, check_name};

/// The longest path and the longest argument, in bytes (`PATH_MAX` of Linux).
pub const MAX_TEXT: usize = 4096;

/// The bytes of a virtio disk's serial number (virtio 1.2, 5.2.6: `VIRTIO_BLK_ID_BYTES`).
pub const MAX_SERIAL: usize = 20;

/// The bytes of a 9p or virtio-fs tag that every driver takes (virtio 1.2, 5.11.4: 36).
pub const MAX_TAG: usize = 31;

/// Checks a tag, serial or set name: `most` of `[A-Za-z0-9_.-]`, at least one.
fn is_word(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Checks an absolute path of the user's.
///
/// # Errors
/// What a path must be.
pub fn check_path(path: &str) -> Result<(), String> {
    if !path.starts_with('/') || path.contains('\0') {
        Err(format!("'{}' is no absolute path", shown(path)))
    } else if path.len() > MAX_TEXT {
        Err(format!("a path has at most {MAX_TEXT} bytes"))
    } else {
        Ok(())
    }
}

/// Checks the tag of a mount.
///
/// # Errors
/// What a tag must be.
pub fn check_tag(tag: &str) -> Result<(), String> {
    if is_word(tag, MAX_TAG) {
        Ok(())
    } else {
        Err(format!(
            "'{}' is no mount tag: 1 to {MAX_TAG} of A-Z a-z 0-9 _ . -",
            shown(tag)
        ))
    }
}

/// Checks the serial number of a disk.
///
/// # Errors
/// What a serial number must be.
pub fn check_serial(serial: &str) -> Result<(), String> {
    if is_word(serial, MAX_SERIAL) {
        Ok(())
    } else {
        Err(format!(
            "'{}' is no serial number: 1 to {MAX_SERIAL} of A-Z a-z 0-9 _ . -",
            shown(serial)
        ))
    }
}

/// Checks a model or type of QEMU's: it becomes the first part of an option's value.
///
/// # Errors
/// What a model must be.
pub fn check_model(model: &str) -> Result<(), String> {
    let ok = (1..=256).contains(&model.len())
        && !model.starts_with('-')
        && model
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_.-+,=:".contains(&b));
    if ok {
        Ok(())
    } else {
        Err(format!(
            "'{}' is no model of QEMU: 1 to 256 of A-Z a-z 0-9 _ . - + , = :",
            shown(model)
        ))
    }
}

/// Checks a host name or alias: RFC 1123 labels with dots between them.
///
/// # Errors
/// What a host name must be.
pub fn check_host_name(name: &str) -> Result<(), String> {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if name.len() <= 253 && name.split('.').all(label) {
        Ok(())
    } else {
        Err(format!(
            "'{}' is no host name: letters, digits and dashes, at most 63 between dots",
            shown(name)
        ))
    }
}

impl TemplateSpec {
    /// Checks every value, as one that a user may have forged.
    ///
    /// # Errors
    /// The key, what it holds and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let key = |key: &'static str| move |why: String| format!("{key}: {why}");
        if let Some(cpus) = self.cpus
            && !(1..=MAX_VCPUS).contains(&cpus)
        {
            return Err(format!("cpus: {cpus}, allowed are 1 to {MAX_VCPUS}"));
        }
        for (name, size) in [("memory", self.memory), ("disk-size", self.disk_size)] {
            if let Some(size) = size {
                check_size(size).map_err(key(name))?;
            }
        }
        match &self.image {
            Some(image) => check_image(image).map_err(key("image"))?,
            None if self.persistent_drives.is_empty() && self.kernel.is_none() => {
                return Err("it has nothing to boot from: no image, drive or kernel".into());
            }
            None => {}
        }
        if let Some(set) = &self.resource_set {
            check_name(set).map_err(|e| format!("resource-set: {e}"))?;
        }
        if self.emulator_cores > MAX_VCPUS {
            return Err(format!("emulator-cores: at most {MAX_VCPUS}"));
        }
        if let Some(seconds) = self.ready_timeout
            && !(1..=86_400).contains(&seconds)
        {
            return Err(format!("ready-timeout: {seconds}, allowed are 1 to 86400"));
        }
        self.check_texts()?;
        self.check_devices()
    }

    fn check_texts(&self) -> Result<(), String> {
        let models = [
            ("nic-model", &self.nic_model),
            ("machine-type", &self.machine_type),
            ("cpu-model", &self.cpu_model),
        ];
        for (key, model) in models {
            if let Some(model) = model {
                check_model(model).map_err(|e| format!("{key}: {e}"))?;
            }
        }
        let texts = self.custom_args.iter().map(|a| ("custom-args", a));
        let texts = texts
            .chain(self.instance_id.iter().map(|t| ("instance-id", t)))
            .chain(self.qemu_bin.iter().map(|t| ("qemu-bin", t)));
        for (key, text) in texts {
            if text.is_empty() || text.len() > MAX_TEXT || text.contains(['\0', '\n']) {
                return Err(format!(
                    "{key}: a text of 1 to {MAX_TEXT} bytes in one line"
                ));
            }
        }
        if self.custom_args.len() > 256 {
            return Err("custom-args: at most 256".into());
        }
        if let Some(name) = &self.hostname {
            check_host_name(&name.replace(RANK, "0")).map_err(|e| format!("hostname: {e}"))?;
        }
        if let Ready::Command(words) = &self.ready
            && (words.is_empty()
                || words.len() > 64
                || words.iter().any(|w| w.len() > MAX_TEXT || w.contains('\0')))
        {
            return Err(format!(
                "ready: a command of 1 to 64 words of at most {MAX_TEXT} bytes"
            ));
        }
        for alias in &self.dns_aliases {
            check_host_name(&alias.replace(RANK, "0")).map_err(|e| format!("dns-aliases: {e}"))?;
        }
        match &self.user_data {
            Some(UserData::Inline(text)) if text.len() > MAX_INLINE_USER_DATA => Err(format!(
                "user-data: at most {MAX_INLINE_USER_DATA} bytes travel in the request"
            )),
            Some(UserData::File { path, sha256 }) => {
                check_path(path).map_err(|e| format!("user-data: {e}"))?;
                let hex = sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_hexdigit());
                hex.then_some(())
                    .ok_or_else(|| "user-data: sha256 has 64 hexadecimal digits".into())
            }
            _ => Ok(()),
        }
    }

    fn check_devices(&self) -> Result<(), String> {
        let counts = [
            ("mount-points", self.mount_points.len()),
            ("persistent-drives", self.persistent_drives.len()),
            ("data-disks", self.data_disks.len()),
            ("dns-aliases", self.dns_aliases.len()),
        ];
        for (key, count) in counts {
            if count > MAX_DEVICES {
                return Err(format!("{key}: {count}, at most {MAX_DEVICES}"));
            }
        }
        for (tag, mount) in &self.mount_points {
            check_tag(tag).map_err(|e| format!("mount-points: {e}"))?;
            check_path(&mount.path).map_err(|e| format!("mount-points.{tag}: {e}"))?;
        }
        for drive in &self.persistent_drives {
            check_path(&drive.path).map_err(|e| format!("persistent-drives: {e}"))?;
        }
        for disk in &self.data_disks {
            let bad = |e: String| format!("data-disks: {e}");
            check_serial(&disk.serial).map_err(bad)?;
            check_size(disk.size).map_err(bad)?;
            if let Some(path) = &disk.path {
                check_path(path).map_err(bad)?;
            }
        }
        if let Some(kernel) = &self.kernel {
            check_path(&kernel.path).map_err(|e| format!("kernel: {e}"))?;
            if let Some(initrd) = &kernel.initrd {
                check_path(initrd).map_err(|e| format!("initrd: {e}"))?;
            }
            if kernel.args.len() > MAX_TEXT || kernel.args.contains(['\0', '\n']) {
                return Err(format!("kernel-args: at most {MAX_TEXT} bytes in one line"));
            }
        }
        if let Some(Users::Roster(path)) = &self.users {
            check_path(path).map_err(|e| format!("users: {e}"))?;
        }
        match self.gpus {
            Gpus::Count(n) if usize::try_from(n).is_ok_and(|n| n > MAX_DEVICES) => {
                Err(format!("gpus: {n}, at most {MAX_DEVICES}"))
            }
            _ => Ok(()),
        }
    }
}

fn check_size(size: Mib) -> Result<(), String> {
    if (1..=1 << 30).contains(&size.0) {
        Ok(())
    } else {
        Err(format!("{size}, allowed are 1 MiB to 1 PiB"))
    }
}

fn check_image(image: &ImageRef) -> Result<(), String> {
    let path = match image {
        ImageRef::Repository {
            repo, name, path, ..
        } => {
            check_name(repo).map_err(|e| e.to_string())?;
            check_name(name).map_err(|e| e.to_string())?;
            path
        }
        ImageRef::File { path } => path,
    };
    check_path(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Mib;
    use crate::template::{DataDisk, DiskModel, Kernel, Mount, MountType};

    type Forge<'a> = &'a dyn Fn(&mut TemplateSpec);

    #[test]
    fn forged_values_are_refused() {
        let good = TemplateSpec {
            image: Some(ImageRef::File { path: "/i".into() }),
            ..TemplateSpec::default()
        };
        assert_eq!(good.check(), Ok(()));
        let forge = |f: &dyn Fn(&mut TemplateSpec)| {
            let mut spec = good.clone();
            f(&mut spec);
            spec.check().unwrap_err()
        };
        let cases: &[(&str, Forge<'_>)] = &[
            ("cpus: 0", &|s| s.cpus = Some(0)),
            ("memory: 0", &|s| s.memory = Some(Mib(0))),
            ("nothing to boot", &|s| s.image = None),
            ("resource-set", &|s| s.resource_set = Some("../x".into())),
            ("nic-model", &|s| s.nic_model = Some("-x".into())),
            ("custom-args", &|s| s.custom_args = vec!["a\nb".into()]),
            ("user-data", &|s| {
                s.user_data = Some(UserData::Inline("x".repeat(MAX_INLINE_USER_DATA + 1)));
            }),
            ("sha256", &|s| {
                s.user_data = Some(UserData::File {
                    path: "/u".into(),
                    sha256: "x".into(),
                });
            }),
            ("mount-points.a: 'x'", &|s| {
                let mount = Mount {
                    path: "x".into(),
                    readonly: false,
                    kind: MountType::Virtio9p,
                };
                s.mount_points.insert("a".into(), mount);
            }),
            ("data-disks: 'a b'", &|s| {
                s.data_disks.push(DataDisk {
                    size: Mib(1),
                    serial: "a b".into(),
                    bus: DiskModel::Ide,
                    path: None,
                });
            }),
            ("gpus: 99", &|s| s.gpus = Gpus::Count(99)),
            ("dns-aliases: 'a_b'", &|s| {
                s.dns_aliases = vec!["a_b".into()]
            }),
            ("image: 'etc/x'", &|s| {
                s.image = Some(ImageRef::File {
                    path: "etc/x".into(),
                });
            }),
            ("kernel: 'k'", &|s| {
                s.kernel = Some(Kernel {
                    path: "k".into(),
                    initrd: None,
                    args: String::new(),
                });
            }),
        ];
        for (part, f) in cases {
            let e = forge(*f);
            assert!(e.contains(part), "{part}: {e}");
        }
    }
}
