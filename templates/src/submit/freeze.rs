//! A template becomes what travels: paths expanded, images found, files looked at.

use std::collections::BTreeMap;

use muster_types::ids::shown;
use muster_types::image::{ImageRef, ImageUri};
use muster_types::template::{
    DataDisk, DiskCache, Drive, Kernel, MAX_INLINE_USER_DATA, Mount, TemplateSpec, UserData, Users,
    check_path,
};

use super::{Files, Overrides, Site, SubmitError, check_user_data};
use crate::expand::{self, Late, Names};
use crate::library::ResolvedTemplate;
use crate::template::{UserDataSource, UsersSource, check_no_url};

/// Freezes templates one after another and collects what is wrong.
pub(super) struct Freezer<'a> {
    pub(super) site: &'a Site<'a>,
    pub(super) names: &'a Names<'a>,
    pub(super) files: &'a dyn Files,
    pub(super) overrides: &'a Overrides,
    pub(super) errors: Vec<SubmitError>,
    pub(super) warnings: Vec<String>,
}

/// The template under work, for messages: a template, or an image that stands for one.
#[derive(Clone, Copy)]
enum Of<'a> {
    Template(&'a ResolvedTemplate),
    Image(&'a str),
}

impl Freezer<'_> {
    /// The template of an item.
    pub(super) fn template(&mut self, template: &ResolvedTemplate) -> TemplateSpec {
        let of = Of::Template(template);
        let settings = template.settings();
        let mut spec = TemplateSpec {
            accel: settings.accel.unwrap_or_default(),
            cpus: settings.cpus,
            memory: settings.memory,
            resource_set: self.set(of, settings.resource_set.as_deref()),
            instance_id: settings.instance_id.clone(),
            disk_model: settings.disk_model.unwrap_or_default(),
            disk_cache: settings.disk_cache.unwrap_or(DiskCache::Unsafe),
            nic_model: settings.nic_model.clone(),
            machine_type: settings.machine_type.clone(),
            cpu_model: settings.cpu_model.clone(),
            custom_args: settings.custom_args.clone().unwrap_or_default(),
            remote_display: settings.remote_display.flatten(),
            emulator_cores: settings.emulator_cores.unwrap_or(0),
            bind_vcpus: settings.bind_vcpus.unwrap_or(true),
            full_node: settings.full_node.unwrap_or(false),
            hugepages: settings.hugepages.flatten(),
            firmware: settings.firmware.unwrap_or_default(),
            tpm: settings.tpm.unwrap_or(false),
            gpus: settings.gpus.unwrap_or_default(),
            disk_size: settings.disk_size,
            ready: settings.ready.clone().unwrap_or_default(),
            ready_timeout: settings.ready_timeout,
            hostname: settings.hostname.clone(),
            dns_aliases: settings.dns_aliases.clone().unwrap_or_default(),
            ..TemplateSpec::default()
        };
        spec.qemu_bin =
            settings
                .qemu_bin
                .as_ref()
                .and_then(|text| match text.contains(['/', '%', '~']) {
                    true => self.path(of, "qemu-bin", text, Late::Refused),
                    false => Some(text.clone()),
                });
        spec.persistent_drives = self.drives(of, settings.persistent_drives.as_deref());
        spec.data_disks = self.data_disks(of, settings.data_disks.as_deref());
        spec.kernel = self.kernel(of);
        spec.users = match &settings.users {
            None | Some(UsersSource::None) => None,
            Some(UsersSource::Me) => Some(Users::Me),
            Some(UsersSource::Roster(text)) => self.file(of, "users", text).map(Users::Roster),
        };
        let user_data = settings.user_data.as_ref();
        self.finish(
            of,
            &template.name,
            &mut spec,
            settings.image.as_deref(),
            user_data,
            settings.mount_points.as_ref(),
        );
        let drives = settings.persistent_drives.as_ref();
        let boots = settings.image.is_some()
            || settings.kernel.is_some()
            || drives.is_some_and(|drives| !drives.is_empty())
            || self.image_override(&template.name).is_some();
        if !boots {
            let message = "the template has no image: it can only be inherited from";
            self.mistake(of, "image", message.to_owned());
        }
        spec
    }

    /// An image that is named in the definition.
    pub(super) fn image_item(&mut self, name: &str, image: ImageRef) -> TemplateSpec {
        let of = Of::Image(name);
        let mut spec = TemplateSpec {
            image: Some(image),
            resource_set: self.set(of, None),
            ..TemplateSpec::default()
        };
        self.finish(of, name, &mut spec, None, None, None);
        spec
    }

    /// What options can change.
    fn finish(
        &mut self,
        of: Of<'_>,
        name: &str,
        spec: &mut TemplateSpec,
        image: Option<&str>,
        user_data: Option<&UserDataSource>,
        mounts: Option<&BTreeMap<String, Mount>>,
    ) {
        match (self.image_override(name), image) {
            (Some(image), _) => match self.found(&image) {
                Ok(found) => spec.image = Some(found),
                Err(why) => self.option("--vm-image", why),
            },
            (None, Some(image)) => match self.found(image) {
                Ok(found) => spec.image = Some(found),
                Err(why) => self.mistake(of, "image", why),
            },
            (None, None) => {}
        }
        let overridden = self.overrides.user_data.clone();
        spec.user_data = match (overridden, user_data) {
            (Some(path), _) => match self.user_data(&path) {
                Ok(data) => Some(data),
                Err(why) => {
                    self.option("--vm-user-data", why);
                    None
                }
            },
            (None, None) => None,
            (None, Some(source)) => {
                let data = match source {
                    UserDataSource::Path(path) => self.user_data(path),
                    UserDataSource::Inline(text) => inline(text),
                };
                data.map_err(|why| self.mistake(of, "user-data", why)).ok()
            }
        };
        for (tag, mount) in mounts.into_iter().flatten() {
            if let Some(path) = self.path(of, "mount-points", &mount.path, Late::Kept) {
                self.look(of, "mount-points", &path, self.files.directory(&path));
                let mount = Mount {
                    path,
                    ..mount.clone()
                };
                spec.mount_points.insert(tag.clone(), mount);
            }
        }
        for (tag, mount) in &self.overrides.mounts.clone() {
            match self.expanded(&mount.path, Late::Kept) {
                Ok(path) => {
                    let mount = Mount {
                        path,
                        ..mount.clone()
                    };
                    spec.mount_points.insert(tag.clone(), mount);
                }
                Err(why) => self.option("--vm-mount", why),
            }
        }
    }

    fn image_override(&self, name: &str) -> Option<String> {
        let own = self.overrides.images.get(name);
        own.or(self.overrides.image.as_ref()).cloned()
    }

    /// The resource set of a template: the one it names, else the default one of the site.
    fn set(&mut self, of: Of<'_>, name: Option<&str>) -> Option<String> {
        let sets = self.site.sets;
        let Some(name) = name else {
            if sets.default_set().is_none() && sets.iter().next().is_some() {
                let all: Vec<_> = sets.iter().map(|s| s.name.as_str()).collect();
                let what = match of {
                    Of::Template(_) => "names none",
                    Of::Image(_) => "a template with it and this image is needed",
                };
                let why = format!(
                    "{what}, and resources.yaml marks none as default: sets are {}",
                    all.join(", ")
                );
                self.mistake(of, "resource-set", why);
            }
            return sets.default_set().map(|s| s.name.clone());
        };
        if sets.get(name).is_none() {
            let why = super::no_set(name, sets);
            self.mistake(of, "resource-set", why);
        }
        Some(name.to_owned())
    }

    /// An image by name or path.
    fn found(&self, written: &str) -> Result<ImageRef, String> {
        check_no_url(written)?;
        let path = expand::expand(written, self.names, Late::Refused).map_err(|e| e.to_string())?;
        if !path.contains('/') {
            let uri = path.parse::<ImageUri>().map_err(|e| e.to_string())?;
            return self.site.catalog.find(&uri).map_err(|e| e.to_string());
        }
        absolute(&path)?;
        match self.files.readable(&path) {
            Ok(()) => Ok(ImageRef::File { path }),
            Err(why) => Err(format!("'{}': {why}", shown(&path))),
        }
    }

    fn user_data(&self, written: &str) -> Result<UserData, String> {
        let path = expand::expand(written, self.names, Late::Refused).map_err(|e| e.to_string())?;
        absolute(&path)?;
        let file = self
            .files
            .read(&path)
            .map_err(|why| format!("'{}': {why}", shown(&path)))?;
        if let Some(text) = &file.text {
            check_user_data(&path, text)?;
            if text.len() <= MAX_INLINE_USER_DATA {
                return Ok(UserData::Inline(text.clone()));
            }
        }
        Ok(UserData::File {
            path,
            sha256: file.sha256,
        })
    }

    fn drives(&mut self, of: Of<'_>, drives: Option<&[Drive]>) -> Vec<Drive> {
        let mut frozen = Vec::new();
        for drive in drives.unwrap_or_default() {
            if let Some(path) = self.path(of, "persistent-drives", &drive.path, Late::Kept) {
                self.look(of, "persistent-drives", &path, self.files.readable(&path));
                frozen.push(Drive {
                    path,
                    ..drive.clone()
                });
            }
        }
        frozen
    }

    fn data_disks(&mut self, of: Of<'_>, disks: Option<&[DataDisk]>) -> Vec<DataDisk> {
        let mut frozen = Vec::new();
        for disk in disks.unwrap_or_default() {
            let path = disk.path.as_ref();
            let path = path.and_then(|p| self.path(of, "data-disks", p, Late::Kept));
            if let Some(path) = &path {
                self.look(of, "data-disks", path, self.files.readable(path));
            }
            frozen.push(DataDisk {
                path,
                ..disk.clone()
            });
        }
        frozen
    }

    fn kernel(&mut self, of: Of<'_>) -> Option<Kernel> {
        let Of::Template(template) = of else {
            return None;
        };
        let settings = template.settings();
        let path = self.file(of, "kernel", settings.kernel.as_deref()?)?;
        let initrd = settings.initrd.as_deref();
        let initrd = initrd.and_then(|text| self.file(of, "initrd", text));
        Some(Kernel {
            path,
            initrd,
            args: settings.kernel_args.clone().unwrap_or_default(),
        })
    }

    /// A file that has to be readable now.
    fn file(&mut self, of: Of<'_>, key: &str, text: &str) -> Option<String> {
        let path = self.path(of, key, text, Late::Refused)?;
        if let Err(why) = self.files.readable(&path) {
            self.mistake(of, key, format!("'{}': {why}", shown(&path)));
        }
        Some(path)
    }

    fn path(&mut self, of: Of<'_>, key: &str, text: &str, late: Late) -> Option<String> {
        self.expanded(text, late)
            .map_err(|why| self.mistake(of, key, why))
            .ok()
    }

    fn expanded(&self, text: &str, late: Late) -> Result<String, String> {
        let path = expand::expand(text, self.names, late).map_err(|e| e.to_string())?;
        absolute(&path).map(|()| path)
    }

    /// Warns of what is not there: it may well be on the nodes, where it is needed.
    fn look(&mut self, of: Of<'_>, key: &str, path: &str, found: Result<(), String>) {
        if expand::is_late(path) {
            return;
        }
        if let (Err(why), Of::Template(template)) = (found, of) {
            self.warnings.push(format!(
                "template '{}': {key}: '{}' on this host: {why}",
                template.name,
                shown(path)
            ));
        }
    }

    fn mistake(&mut self, of: Of<'_>, key: &str, message: String) {
        self.errors.push(match of {
            Of::Template(template) => SubmitError::Template(template.mistake(key, message)),
            Of::Image(name) => SubmitError::Item {
                item: shown(name),
                why: format!("{key}: {message}"),
            },
        });
    }

    fn option(&mut self, option: &'static str, why: String) {
        let error = SubmitError::Option { option, why };
        // An option holds for all templates, its mistake is told once.
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }
}

/// Checks a path once its names are replaced.
fn absolute(path: &str) -> Result<(), String> {
    check_path(path).map_err(|why| match path.starts_with('/') {
        true => why,
        false => format!("{why}: begin it with /, ~ or %{{homedir}}"),
    })
}

fn inline(text: &str) -> Result<UserData, String> {
    if text.len() > MAX_INLINE_USER_DATA {
        return Err(format!(
            "has {} bytes, at most {MAX_INLINE_USER_DATA} fit here: write it to a file and name that",
            text.len()
        ));
    }
    check_user_data("user-data", text)?;
    Ok(UserData::Inline(text.to_owned()))
}
