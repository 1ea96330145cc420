//! The C side: what Slurm finds in the plugin, and every call of Slurm's functions.
//!
//! Each hook and the option's callback run inside `catch_unwind`: a panic that left an `extern "C"`
//! function would abort the program that loaded the plugin, slurmd included.

#![expect(
    unsafe_code,
    reason = "symbols by name for Slurm, and calls of its C functions"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use muster_config::Trees;
use muster_templates::expand::Names;
use muster_types::ids::JobId;
use muster_types::request::REQUEST_VARIABLE;
use slurm_spank_sys as sys;

use crate::account;
use crate::allocator::{self, Submission};
use crate::epilog;
use crate::options::{self, Choice, Given, PluginOption, REQUEST_IN_JOB, VM};
use crate::prolog;
use crate::remote::{self, Task};
use crate::submission;
use crate::verdict::Verdict;

/// Slurm's `plugin_name`; part of the names under which options travel.
// SAFETY: no other object of the program that loads the plugin looks the name up in it.
#[unsafe(no_mangle)]
static plugin_name: [u8; 7] = *b"muster\0";

/// Slurm's `plugin_type`.
// SAFETY: as for `plugin_name`.
#[unsafe(no_mangle)]
static plugin_type: [u8; 6] = *b"spank\0";

/// The Slurm release that the plugin was built for.
// SAFETY: as for `plugin_name`.
#[unsafe(no_mangle)]
static plugin_version: c_uint = sys::SLURM_VERSION_NUMBER;

/// A failing `init` fails the job and leaves the node in service (Slurm 25.05 and later).
// SAFETY: as for `plugin_name`.
#[unsafe(no_mangle)]
static slurm_spank_init_failure_mode: c_int = sys::ESPANK_JOB_FAILURE;

/// The options' arguments from their callback to `init_post_opt`, in salloc, sbatch and srun.
static GIVEN: Mutex<Given> = Mutex::new(Given::none());

const SUCCESS: c_int = 0;
const FAILURE: c_int = -1;

/// Registers the option.
///
/// # Safety
/// Called by Slurm with its handle and the plugin's arguments.
// SAFETY: as for `plugin_name`.
#[unsafe(no_mangle)]
unsafe extern "C" fn slurm_spank_init(
    spank: sys::spank_t,
    _ac: c_int,
    _av: *mut *mut c_char,
) -> c_int {
    guard("init", FAILURE, || {
        let context = context();
        if context == sys::S_CTX_ALLOCATOR {
            forget_outer_job();
        }
        if matches!(
            context,
            sys::S_CTX_LOCAL | sys::S_CTX_ALLOCATOR | sys::S_CTX_REMOTE
        ) {
            for (number, option) in (0..).zip(&options::ALL) {
                let error = Handle(spank).register(number, option);
                if error != sys::ESPANK_SUCCESS {
                    let name = option.name.to_string_lossy();
                    log_error(&format!("muster: register --{name}: {}", strerror(error)));
                    // A remote init that fails drains the node.
                    if context != sys::S_CTX_REMOTE {
                        return FAILURE;
                    }
                }
            }
        }
        SUCCESS
    })
}

/// Resolves the cluster definition in salloc, sbatch and srun.
///
/// # Safety
/// Called by Slurm with its handle and the plugin's arguments.
// SAFETY: as for `plugin_name`.
#[unsafe(no_mangle)]
unsafe extern "C" fn slurm_spank_init_post_opt(
    spank: sys::spank_t,
    _ac: c_int,
    _av: *mut *mut c_char,
) -> c_int {
    let is_allocator = match context() {
        sys::S_CTX_ALLOCATOR => true,
        sys::S_CTX_LOCAL => false,
        // A failure in another context drains the node.
        _ => return SUCCESS,
    };
    guard("init_post_opt", FAILURE, || {
        // Taken: in a heterogeneous job this runs once for each component.
        let given = std::mem::take(&mut *GIVEN.lock().unwrap_or_else(PoisonError::into_inner));
        if given == Given::none() {
            return SUCCESS;
        }
        let submission = Submission::of(
            own_program().as_deref(),
            is_allocator,
            std::env::var_os("SLURM_JOB_ID"),
        );
        // The account, not HOME and USER, which a batch system may hand on from elsewhere.
        let account = account::own();
        let home = account.as_ref().map(|a| a.home.as_path());
        let trees = Trees::from_env(&|name| std::env::var_os(name), home);
        let names = Names {
            home: home.and_then(Path::to_str),
            user: account.as_ref().map_or("", |a| &a.name),
            env: &variable,
        };
        let verdict =
            match allocator::request(given, submission, &trees, &names, &submission::asker_facts) {
                Ok(None) => Verdict::good(),
                Ok(Some(frozen)) => {
                    match Handle(spank).control_setenv(REQUEST_VARIABLE, &frozen.json) {
                        Ok(()) => Verdict {
                            notes: frozen.notes,
                            ..Verdict::good()
                        },
                        Err(e) => Verdict::failure(
                            allocator::PREFIX,
                            &format!("put the request into the job's environment: {e}"),
                        ),
                    }
                }
                Err(text) => Verdict::failure("", &text),
            };
        tell(&verdict)
    })
}

/// Waits for the VMs in a task before its exec.
///
/// # Safety
/// Called by Slurm with its handle and the plugin's arguments.
// SAFETY: as for `plugin_name`.
#[unsafe(no_mangle)]
unsafe extern "C" fn slurm_spank_task_init(
    spank: sys::spank_t,
    ac: c_int,
    av: *mut *mut c_char,
) -> c_int {
    guard("task_init", FAILURE, || {
        let handle = Handle(spank);
        let choice = Choice::of(handle.option_of_task(&VM));
        if choice == Choice::Off {
            return SUCCESS;
        }
        let Some(job) = handle.job_id().filter(|job| *job > 0) else {
            log_error("muster: Slurm does not say which job this is");
            return FAILURE;
        };
        let task = Task {
            job: JobId(job),
            node: handle
                .getenv(c"SLURMD_NODENAME")
                .or_else(|| nix::unistd::gethostname().ok()?.into_string().ok())
                .unwrap_or_else(|| "this node".into()),
            first_on_node: handle.local_task() == Some(0),
            first: handle.global_task() == Some(0) && handle.is_first_command(),
            wait: handle.option_of_task(&options::WAIT),
            wait_timeout: handle.option_of_task(&options::WAIT_TIMEOUT),
        };
        // SAFETY: Slurm's own count and array.
        let arguments = unsafe { arguments(ac, av) };
        tell(&remote::run(&choice, &arguments, &task))
    })
}

/// Registers the job with the node's vmd.
///
/// # Safety
/// Called by Slurm with its handle and the plugin's arguments.
// SAFETY: as for `plugin_name`.
#[unsafe(no_mangle)]
unsafe extern "C" fn slurm_spank_job_prolog(
    spank: sys::spank_t,
    ac: c_int,
    av: *mut *mut c_char,
) -> c_int {
    // Failure would drain the node: not for a fault of the plugin.
    guard("job_prolog", SUCCESS, || {
        let choice = Choice::of(Handle(spank).option(&VM));
        if choice == Choice::Off {
            return SUCCESS;
        }
        // SAFETY: Slurm's own count and array.
        let arguments = unsafe { arguments(ac, av) };
        let program = own_program();
        tell(&prolog::run(
            &choice,
            &arguments,
            &variable,
            program.as_deref(),
        ))
    })
}

/// Has the node's vmd release the job.
///
/// # Safety
/// Called by Slurm with its handle and the plugin's arguments.
// SAFETY: as for `plugin_name`.
#[unsafe(no_mangle)]
unsafe extern "C" fn slurm_spank_job_epilog(
    spank: sys::spank_t,
    ac: c_int,
    av: *mut *mut c_char,
) -> c_int {
    guard("job_epilog", SUCCESS, || {
        let choice = Choice::of(Handle(spank).option(&VM));
        if choice == Choice::Off {
            return SUCCESS;
        }
        // SAFETY: Slurm's own count and array.
        let arguments = unsafe { arguments(ac, av) };
        tell(&epilog::run(&choice, &arguments, &variable))
    })
}

/// salloc or sbatch in the shell or script of a job submits another job. Slurm would hand it the outer
/// job's `--vm`, so that `sbatch next.sh` in a script got VMs that nobody asked for; the variables by
/// which it does so are removed before it reads them.
fn forget_outer_job() {
    let names = options::ALL.iter().flat_map(options::variables);
    for name in names.chain([REQUEST_IN_JOB.to_string_lossy().into_owned()]) {
        // SAFETY: the command loads its plugins before it starts a thread.
        unsafe { std::env::remove_var(name) };
    }
}

/// Keeps an option's argument. In a step `spank_option_getopt` gives it when it is needed.
unsafe extern "C" fn option_given(val: c_int, argument: *const c_char, remote: c_int) -> c_int {
    guard("option --vm", FAILURE, || {
        // SAFETY: Slurm passes the option's argument, a string that outlives the call.
        if let Some(text) = unsafe { string(argument) }.filter(|_| remote == 0) {
            let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
            given.take(val, text);
        }
        SUCCESS
    })
}

/// Runs a hook; a panic becomes a line and `on_panic`.
fn guard(hook: &str, on_panic: c_int, body: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        // Formatting a string cannot panic a second time.
        log_error(&format!(
            "muster: internal error in {hook}, please report it"
        ));
        on_panic
    })
}

/// Prints a verdict and turns it into a hook's result.
fn tell(verdict: &Verdict) -> c_int {
    for line in &verdict.notes {
        log_note(line);
    }
    for line in &verdict.errors {
        log_error(line);
    }
    if verdict.failed { FAILURE } else { SUCCESS }
}

fn variable(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}

/// The program that loaded the plugin.
fn own_program() -> Option<PathBuf> {
    std::fs::read_link(Path::new("/proc/self/exe")).ok()
}

/// Slurm's handle, valid during the hook that got it.
#[derive(Clone, Copy)]
struct Handle(sys::spank_t);

impl Handle {
    /// Slurm keeps the pointer for as long as the program runs, so the record is never freed: a few
    /// words, once per program.
    fn register(self, number: c_int, option: &PluginOption) -> sys::spank_err_t {
        let record = Box::leak(Box::new(record(number, option)));
        // SAFETY: called from `slurm_spank_init` with its handle; the record lives on.
        unsafe { sys::spank_option_register(self.0, record) }
    }

    /// The option's argument, in a prolog, an epilog or a task.
    fn option(self, option: &PluginOption) -> Option<String> {
        let mut record = record(0, option);
        let mut argument: *mut c_char = ptr::null_mut();
        // SAFETY: both pointers are to locals; Slurm reads the record and sets the argument.
        let error = unsafe { sys::spank_option_getopt(self.0, &raw mut record, &raw mut argument) };
        if error != sys::ESPANK_SUCCESS {
            return None;
        }
        // SAFETY: on success the argument is a string that Slurm keeps, or null.
        unsafe { string(argument) }
    }

    /// A variable of the task's environment, cut to a few hundred bytes; `None` for an empty one.
    fn getenv(self, name: &CStr) -> Option<String> {
        let mut buffer = [0_u8; 256];
        let size = c_int::try_from(buffer.len()).ok()?;
        // SAFETY: the buffer has the size that is passed.
        let error =
            unsafe { sys::spank_getenv(self.0, name.as_ptr(), buffer.as_mut_ptr().cast(), size) };
        if error != sys::ESPANK_SUCCESS && error != sys::ESPANK_NOSPACE {
            return None;
        }
        let text = CStr::from_bytes_until_nul(&buffer).ok()?;
        Some(text.to_string_lossy().into_owned()).filter(|t| !t.is_empty())
    }

    fn control_setenv(self, name: &str, value: &str) -> Result<(), String> {
        let text = |s: &str| CString::new(s).map_err(|e| e.to_string());
        let (name, value) = (text(name)?, text(value)?);
        // SAFETY: two strings, which Slurm copies.
        let error =
            unsafe { sys::spank_job_control_setenv(self.0, name.as_ptr(), value.as_ptr(), 1) };
        if error == sys::ESPANK_SUCCESS {
            Ok(())
        } else {
            Err(strerror(error))
        }
    }

    /// An option that a task's command was started with. Before 24.05 the script of `sbatch
    /// --export=NONE` has no plugin options, but still the variables made from them.
    fn option_of_task(self, option: &PluginOption) -> Option<String> {
        let given = self.option(option);
        if given.is_some() || self.step_id() != Some(sys::BATCH_STEP) {
            return given;
        }
        let [_, variable] = options::variables(option);
        self.getenv(&CString::new(variable).ok()?)
    }

    /// Whether this is the command that the job was submitted with, and not a step in its shell or
    /// script: those have the request in their environment.
    fn is_first_command(self) -> bool {
        self.step_id() == Some(sys::BATCH_STEP) || self.getenv(REQUEST_IN_JOB).is_none()
    }

    fn step_id(self) -> Option<u32> {
        let mut value: u32 = 0;
        // SAFETY: S_JOB_STEPID takes one `uint32_t *` (spank.h).
        let error = unsafe { sys::spank_get_item(self.0, sys::S_JOB_STEPID, &raw mut value) };
        (error == sys::ESPANK_SUCCESS).then_some(value)
    }

    fn job_id(self) -> Option<u32> {
        let mut value: u32 = 0;
        // SAFETY: S_JOB_ID takes one `uint32_t *` (spank.h).
        let error = unsafe { sys::spank_get_item(self.0, sys::S_JOB_ID, &raw mut value) };
        (error == sys::ESPANK_SUCCESS).then_some(value)
    }

    fn global_task(self) -> Option<u32> {
        let mut value: u32 = 0;
        // SAFETY: S_TASK_GLOBAL_ID takes one `uint32_t *` (spank.h).
        let error = unsafe { sys::spank_get_item(self.0, sys::S_TASK_GLOBAL_ID, &raw mut value) };
        (error == sys::ESPANK_SUCCESS).then_some(value)
    }

    fn local_task(self) -> Option<c_int> {
        let mut value: c_int = 0;
        // SAFETY: S_TASK_ID takes one `int *` (spank.h).
        let error = unsafe { sys::spank_get_item(self.0, sys::S_TASK_ID, &raw mut value) };
        (error == sys::ESPANK_SUCCESS).then_some(value)
    }
}

/// The C record of an option. Slurm does not write to the strings, although it takes them as `char *`.
fn record(number: c_int, option: &PluginOption) -> sys::spank_option {
    sys::spank_option {
        name: option.name.as_ptr().cast_mut(),
        arginfo: option.argument.as_ptr().cast_mut(),
        usage: option.usage.as_ptr().cast_mut(),
        has_arg: 1,
        val: number,
        cb: Some(option_given),
    }
}

fn context() -> sys::spank_context_t {
    // SAFETY: takes nothing, reads a variable of Slurm.
    unsafe { sys::spank_context() }
}

fn strerror(error: sys::spank_err_t) -> String {
    // SAFETY: takes any number.
    let text = unsafe { sys::spank_strerror(error) };
    // SAFETY: a static string, or null.
    unsafe { string(text) }.unwrap_or_else(|| format!("error {error}"))
}

/// Logs at error level; the user of salloc, sbatch, srun or of a task sees it.
fn log_error(line: &str) {
    let line = c_line(line);
    // SAFETY: the text is an argument of a fixed format, never the format itself.
    unsafe { sys::slurm_error(c"%s".as_ptr(), line.as_ptr()) }
}

/// Shows the user a line that is not called an error.
fn log_note(line: &str) {
    let line = c_line(line);
    // SAFETY: the text is an argument of a fixed format, never the format itself.
    unsafe { sys::slurm_spank_log(c"%s".as_ptr(), line.as_ptr()) }
}

fn c_line(line: &str) -> CString {
    CString::new(line.replace('\0', "?")).unwrap_or_default()
}

/// A C string, lossily.
///
/// # Safety
/// The pointer is null or a string.
unsafe fn string(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, so a string by the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// The plugin's arguments in plugstack.conf.
///
/// # Safety
/// `av` has `ac` strings.
unsafe fn arguments(ac: c_int, av: *mut *mut c_char) -> Vec<String> {
    let count = usize::try_from(ac).unwrap_or(0);
    if av.is_null() {
        return Vec::new();
    }
    // SAFETY: so many pointers by the caller's word.
    let pointers = unsafe { std::slice::from_raw_parts(av, count) };
    pointers
        .iter()
        // SAFETY: each is a string by the caller's word.
        .filter_map(|p| unsafe { string(*p) })
        .collect()
}
