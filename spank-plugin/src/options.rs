//! The options that the plugin adds to `salloc`, `sbatch` and `srun`: one table.

use std::ffi::{CStr, c_int};

use muster_templates::submit::Options;

/// An option as Slurm is told of it.
#[derive(Debug, Clone, Copy)]
pub struct PluginOption {
    /// Without the dashes. Part of the job's data on the wire: never changed.
    pub name: &'static CStr,
    /// The argument, for `--help`.
    pub argument: &'static CStr,
    /// What it does, for `--help`.
    pub usage: &'static CStr,
    /// Keeps its argument.
    pub keep: fn(&mut Given, String),
}

/// All options; Slurm gives the place in this table back with an option's argument.
pub const ALL: [PluginOption; 6] = [VM, IMAGE, MOUNT, USER_DATA, WAIT, WAIT_TIMEOUT];

/// `--vm`.
pub const VM: PluginOption = PluginOption {
    name: c"vm",
    argument: c"TEMPLATE[:COUNT],...",
    usage:
        c"run COUNT virtual machines of each TEMPLATE in the job, on its nodes and from its cores \
             and memory ('muster template list' shows templates; none: no virtual machines)",
    keep: |given, text| given.vm = Some(text),
};

/// `--vm-image`.
pub const IMAGE: PluginOption = PluginOption {
    name: c"vm-image",
    argument: c"[TEMPLATE=]IMAGE",
    usage: c"boot the virtual machines of TEMPLATE, or all of them, from another image \
             ([REPO:]NAME[@REVISION], or a path); may be given for each template",
    keep: |given, text| given.others.images.push(text),
};

/// `--vm-mount`.
pub const MOUNT: PluginOption = PluginOption {
    name: c"vm-mount",
    argument: c"TAG=PATH[,type=TYPE][,readonly=BOOL]",
    usage: c"give the host directory PATH to all virtual machines under the mount tag TAG \
             (TYPE: virtio-9p or virtio-fs); may be given again",
    keep: |given, text| given.others.mounts.push(text),
};

/// `--vm-user-data`.
pub const USER_DATA: PluginOption = PluginOption {
    name: c"vm-user-data",
    argument: c"FILE",
    usage:
        c"give FILE to cloud-init in all virtual machines, in place of their templates' user-data",
    keep: |given, text| given.others.user_data = Some(text),
};

/// `--vm-wait`.
pub const WAIT: PluginOption = PluginOption {
    name: c"vm-wait",
    argument: c"ready|running|no",
    usage:
        c"until when the batch script and the job's steps wait before they start (default: ready)",
    keep: |given, text| given.others.wait = Some(text),
};

/// `--vm-wait-timeout`.
pub const WAIT_TIMEOUT: PluginOption = PluginOption {
    name: c"vm-wait-timeout",
    argument: c"SECONDS",
    usage: c"how long they wait before they fail, 1 to 86400 (default: 600)",
    keep: |given, text| given.others.wait_timeout = Some(text),
};

/// Where a job's shell or script finds an option it was submitted with: under the second name as a
/// job control variable (sbatch(1)), under the first for the options of `srun`. Slurm writes `_` for
/// what is no letter or digit.
#[must_use]
pub fn variables(option: &PluginOption) -> [String; 2] {
    let name = option.name.to_string_lossy().replace('-', "_");
    let variable = format!("_SLURM_SPANK_OPTION_muster_{name}");
    [variable.clone(), format!("SLURM_SPANK_{variable}")]
}

/// The options of one salloc, sbatch or srun.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// `--vm`.
    pub vm: Option<String>,
    /// The others.
    pub others: Options,
}

impl Given {
    /// A `Given` of nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            vm: None,
            others: Options {
                images: Vec::new(),
                mounts: Vec::new(),
                user_data: None,
                wait: None,
                wait_timeout: None,
            },
        }
    }

    /// Takes an option's argument; `number` is its place in [`ALL`].
    pub fn take(&mut self, number: c_int, text: String) {
        let option = usize::try_from(number).ok().and_then(|n| ALL.get(n));
        if let Some(option) = option {
            (option.keep)(self, text);
        }
    }
}

/// Where a job's shell or script finds the request it was submitted with.
pub const REQUEST_IN_JOB: &CStr = c"SLURM_SPANK_MUSTER_REQUEST";

/// What the user wants of `--vm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The option is not there, or says `none`: nothing to do with Muster.
    Off,
    /// The cluster definition.
    Vms(String),
}

impl Choice {
    /// Reads the option's argument.
    #[must_use]
    pub fn of(argument: Option<String>) -> Self {
        match argument {
            Some(text) if text.trim() != "none" => Self::Vms(text),
            _ => Self::Off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_job_have_the_names_that_slurm_gives() {
        let own = variables(&WAIT_TIMEOUT);
        let name = "_SLURM_SPANK_OPTION_muster_vm_wait_timeout";
        assert_eq!(own, [name.to_owned(), format!("SLURM_SPANK_{name}")]);
        assert_eq!(
            REQUEST_IN_JOB.to_str().unwrap(),
            format!("SLURM_SPANK_{}", muster_types::request::REQUEST_VARIABLE)
        );
    }

    #[test]
    fn each_option_goes_to_its_place() {
        let mut given = Given::none();
        for (number, _) in (0..).zip(ALL) {
            given.take(number, format!("a{number}"));
        }
        given.take(1, "b".into());
        given.take(99, "lost".into());
        let text = |n: u8| Some(format!("a{n}"));
        assert_eq!(given.vm, text(0));
        assert_eq!(given.others.images, ["a1", "b"]);
        assert_eq!(given.others.mounts, ["a2"]);
        assert_eq!(given.others.user_data, text(3));
        assert_eq!(given.others.wait, text(4));
        assert_eq!(given.others.wait_timeout, text(5));
    }

    #[test]
    fn none_turns_it_off() {
        assert_eq!(Choice::of(None), Choice::Off);
        assert_eq!(Choice::of(Some("none".into())), Choice::Off);
        assert_eq!(
            Choice::of(Some("tiny:2".into())),
            Choice::Vms("tiny:2".into())
        );
        // Refused later, with a reason.
        assert_eq!(Choice::of(Some(String::new())), Choice::Vms(String::new()));
    }
}
