//! A command of the user. Each call starts a process. A judge reads its input as JSON from standard input and
//! writes the result to standard output; a command that [checks](Command::check) a text reads it there.
//!
//! | exit | meaning | retried |
//! | --- | --- | --- |
//! | code 0 | success: standard output is the result | |
//! | code 75 (`EX_TEMPFAIL`) | temporary failure | yes, a bounded number of times |
//! | a code by which the text is invalid, if it checks one | success: what it writes are the errors in the text | |
//! | any other code, or a signal | failure | no |
//! | cannot be started | failure | yes, a bounded number of times |
//! | not within the timeout | timeout | yes, a bounded number of times |
//!
//! A call that is cancelled, by a timeout or because the run stops, kills the command and its whole process
//! group.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use tidegate_core::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;

use super::CallOutput;
use super::answer::{CallError, excerpt};
use super::http::MAX_BODY_BYTES;

/// The exit code for a temporary failure, `EX_TEMPFAIL` of `sysexits.h`.
pub const TEMPORARY_EXIT_CODE: u8 = 75;

/// The maximum number of bytes of standard error that are kept for the error message.
const MAX_STDERR_BYTES: usize = 4 << 10;

/// A command to run for each call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program; a name without a slash is looked up in `PATH`.
    pub program: PathBuf,
    /// The arguments.
    pub arguments: Vec<String>,
    /// The working directory; empty for that of this process.
    pub directory: PathBuf,
    /// Environment variables that the command does not get.
    pub hidden: Vec<OsString>,
    /// The maximum duration of one call.
    pub timeout: Duration,
}

impl Command {
    /// Finds the program without starting it. The error message completes "the command, ...".
    pub fn find(&self) -> Result<PathBuf, &'static str> {
        if self.program.components().count() > 1 || self.program.is_absolute() {
            return match std::fs::metadata(&self.program) {
                Err(_) => Err("which does not exist"),
                Ok(found) if !is_executable(&found) => Err("which is not an executable file"),
                Ok(_) => Ok(self.program.clone()),
            };
        }
        let directories = std::env::var_os("PATH").unwrap_or_default();
        let is_program = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|found| is_executable(&found));
        let found = std::env::split_paths(&directories).map(|directory| directory.join(&self.program)).find(is_program);
        found.ok_or("which is in no directory of PATH")
    }

    /// Makes one call and returns the standard output. Dropping the future kills the command and its process
    /// group.
    pub async fn run(&self, input: &[u8]) -> Result<CallOutput<String>, CallError> {
        self.run_up_to(MAX_BODY_BYTES, input).await
    }

    /// Makes one call like [`Command::run`], whose output may have fewer than `max_bytes`.
    pub async fn run_up_to(&self, max_bytes: usize, input: &[u8]) -> Result<CallOutput<String>, CallError> {
        let Exited { status, stdout, stderr } = self.exit(input, max_bytes).await?;
        interpret_exit(status, stdout, &stderr, max_bytes)
    }

    /// Makes one call in which the command checks `text`. Returns `None` if it exits with 0, and what it has
    /// written, to standard output and then to standard error, if it exits with one of `invalid_exit_codes`.
    pub async fn check(&self, text: &[u8], invalid_exit_codes: &[u8]) -> Result<CallOutput<Option<String>>, CallError> {
        let Exited { status, stdout, stderr } = self.exit(text, MAX_BODY_BYTES).await?;
        let is_invalid = |code: i32| u8::try_from(code).is_ok_and(|code| invalid_exit_codes.contains(&code));
        let value = if status.code().is_some_and(is_invalid) {
            Some([stdout, stderr].map(|written| String::from_utf8_lossy(&written).into_owned()).join("\n"))
        } else {
            // Of a valid text, what the command writes does not matter.
            interpret_exit(status, Vec::new(), &stderr, MAX_BODY_BYTES)?;
            None
        };
        Ok(CallOutput { value, usage: None })
    }

    /// Makes one call, until the command has exited. Keeps up to `max_bytes` of its standard output.
    async fn exit(&self, input: &[u8], max_bytes: usize) -> Result<Exited, CallError> {
        match tokio::time::timeout(self.timeout.into(), self.attempt(input, max_bytes)).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Timeout),
        }
    }

    async fn attempt(&self, input: &[u8], max_bytes: usize) -> Result<Exited, CallError> {
        let not_started = |error: io::Error| CallError::CommandNotStarted { detail: error.to_string() };
        let mut command = tokio::process::Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !self.directory.as_os_str().is_empty() {
            command.current_dir(&self.directory);
        }
        for name in &self.hidden {
            command.env_remove(name);
        }
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn().map_err(not_started)?;
        let mut group = ProcessGroup(child);
        let (stdin, stdout, stderr) = (group.0.stdin.take(), group.0.stdout.take(), group.0.stderr.take());
        let write = async move {
            if let Some(mut stdin) = stdin {
                // A command may succeed without reading all of its input.
                let _ = stdin.write_all(input).await;
            }
        };
        let read = read_all(stdout, max_bytes);
        let ((), stdout, stderr) = tokio::join!(write, read, read_all(stderr, MAX_STDERR_BYTES));
        let status = group.0.wait().await.map_err(not_started)?;
        Ok(Exited { status, stdout, stderr })
    }
}

/// How a command has exited, and what it has written.
struct Exited {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

#[cfg(unix)]
fn is_executable(file: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.is_file() && file.permissions().mode() & 0o111 != 0
}

/// On other systems the file name decides whether a file is executable.
#[cfg(not(unix))]
fn is_executable(file: &Metadata) -> bool {
    file.is_file()
}

/// Returns the result of a command from its exit status and output.
fn interpret_exit(
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: &[u8],
    max_bytes: usize,
) -> Result<CallOutput<String>, CallError> {
    let malformed = |detail: String| CallError::Malformed { what: "usable", detail, usage: None };
    if !status.success() {
        let message = excerpt(&String::from_utf8_lossy(stderr));
        let detail = if message.is_empty() { status.to_string() } else { format!("{status}: {message}") };
        let is_temporary = status.code() == Some(TEMPORARY_EXIT_CODE.into());
        return Err(if is_temporary { CallError::CommandBusy { detail } } else { CallError::Command { detail } });
    }
    if stdout.len() >= max_bytes {
        return Err(malformed(format!("it is longer than {max_bytes} bytes")));
    }
    match String::from_utf8(stdout) {
        Ok(value) => Ok(CallOutput { value, usage: None }),
        Err(_) => Err(malformed("it is not valid UTF-8".to_string())),
    }
}

/// Reads `stream` to its end and returns the first `max_bytes` bytes.
async fn read_all(stream: Option<impl AsyncRead + Unpin>, max_bytes: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut stream) = stream else { return kept };
    let mut chunk = vec![0; 8 << 10];
    // A read error counts as the end of the stream. The exit code decides the result.
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..read.min(max_bytes - kept.len())]);
    }
    kept
}

/// A running command. Dropping it kills its process group, unless the command has exited.
struct ProcessGroup(Child);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // `id` is `None` once the process was waited for, so the id cannot belong to another process.
        #[cfg(unix)]
        if let Some(pid) = self.0.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)) {
            // The process may have exited in the meantime.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::patience::{until, wait_until};

    fn shell(script: &str) -> Command {
        Command {
            program: PathBuf::from("sh"),
            arguments: vec!["-c".to_string(), script.to_string()],
            directory: PathBuf::new(),
            hidden: Vec::new(),
            timeout: Duration::from_secs(60),
        }
    }

    #[tokio::test]
    async fn a_command_reads_standard_input_and_its_standard_output_is_the_result() {
        let answer = shell("tr a-z A-Z").run(b"{\"row\":1}").await.unwrap();
        assert_eq!(answer.value, "{\"ROW\":1}");
        let answer = shell("echo deaf").run(&vec![b'x'; 1 << 20]).await.unwrap();
        assert_eq!(answer.value, "deaf\n", "a command need not read its input");
    }

    #[tokio::test]
    async fn exit_code_75_is_a_temporary_failure_any_other_is_final_and_a_start_may_be_tried_again() {
        let error = shell("echo later >&2; exit 75").run(b"").await.unwrap_err();
        assert_eq!(error, CallError::CommandBusy { detail: "exit status: 75: later".to_string() });
        let error = shell("echo 'no\nsuch grade' >&2; exit 3").run(b"").await.unwrap_err();
        assert_eq!(error.to_string(), "the command failed (exit status: 3: no such grade)");
        let missing = Command { program: PathBuf::from("/nowhere/judge"), ..shell("") };
        assert!(matches!(missing.run(b"").await, Err(CallError::CommandNotStarted { .. })));
    }

    #[tokio::test]
    async fn a_check_is_valid_invalid_or_failed_by_its_exit_code() {
        let check = async |script: &str| shell(script).check(b"x = 1", &[1, 4]).await.map(|answer| answer.value);
        assert_eq!(check("cat").await, Ok(None));
        assert_eq!(check("tr x y; echo 'line 1' >&2; exit 4").await, Ok(Some("y = 1\nline 1\n".to_string())));
        assert_eq!(check("exit 75").await, Err(CallError::CommandBusy { detail: "exit status: 75".to_string() }));
        let broken = CallError::Command { detail: "exit status: 2: no such rule".to_string() };
        assert_eq!(check("echo no such rule >&2; exit 2").await, Err(broken));
    }

    #[test]
    fn a_program_is_found_without_being_started() {
        assert!(shell("exit 1").find().unwrap().is_absolute());
        let named = |program: &str| Command { program: PathBuf::from(program), ..shell("") };
        assert_eq!(named("no-such-judge-anywhere").find(), Err("which is in no directory of PATH"));
        assert_eq!(named("/nowhere/judge").find(), Err("which does not exist"));
        assert_eq!(named("/").find(), Err("which is not an executable file"));
        assert_eq!(named("/etc/passwd").find(), Err("which is not an executable file"));
    }

    #[tokio::test]
    async fn output_that_is_not_utf8_is_malformed() {
        let error = shell("printf '\\377'").run(b"").await.unwrap_err();
        assert_eq!(error.to_string(), "the answer is not usable: it is not valid UTF-8");
    }

    #[tokio::test]
    async fn a_command_that_exceeds_its_timeout_is_killed_with_its_process_group() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let run = tokio::spawn(async move { shell(&script).run(b"").await });
        let written = || std::fs::read_to_string(&file).unwrap_or_default();
        until(async || written(), |text| text.ends_with('\n')).await;
        let pid: i32 = written().trim().parse().unwrap();
        tokio::time::pause();
        assert_eq!(run.await.unwrap(), Err(CallError::Timeout));
        // A killed process disappears once its new parent has reaped it.
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_gone = || state().is_empty() || state().contains(") Z ") || state().contains(") X ");
        wait_until(is_gone, |is_gone| *is_gone);
    }
}
