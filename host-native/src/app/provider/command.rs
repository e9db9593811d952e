//! A judge that is a command: started for each call, told the question as JSON on its standard input, heard on its
//! standard output.
//!
//! | end | meaning | retried |
//! | --- | --- | --- |
//! | exit code 0 | success: the standard output is the answer | |
//! | exit code 75 (`EX_TEMPFAIL`) | failed, and may work later | yes, a bounded number of times |
//! | any other exit code, or a signal | failed | no |
//! | no end in time | timeout | yes, a bounded number of times |
//!
//! A call that is given up, by a timeout or because the run stops, kills the command and its whole process group.

use std::fs::Metadata;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use tidegate_core::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;

use super::Answer;
use super::answer::{CallError, one_line};
use super::http::MAX_BODY_BYTES;

/// `EX_TEMPFAIL` of sysexits.h: the user is invited to retry.
const TEMPORARY_FAILURE: i32 = 75;

/// Bytes of the standard error that are kept for a message.
const MAX_COMPLAINT_BYTES: usize = 4 << 10;

/// How to run one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The program; a name without a slash is looked up in `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it runs.
    pub directory: PathBuf,
    /// The longest that one call may take.
    pub timeout: Duration,
}

impl Command {
    /// Looks for the program without starting it. The error completes "the command, ...".
    pub fn find(&self) -> Result<PathBuf, &'static str> {
        if self.program.components().count() > 1 || self.program.is_absolute() {
            return match std::fs::metadata(&self.program) {
                Err(_) => Err("which is not there"),
                Ok(found) if !is_executable(&found) => Err("which is no executable file"),
                Ok(_) => Ok(self.program.clone()),
            };
        }
        let directories = std::env::var_os("PATH").unwrap_or_default();
        let is_it = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|found| is_executable(&found));
        let found = std::env::split_paths(&directories).map(|directory| directory.join(&self.program)).find(is_it);
        found.ok_or("which is in no directory of PATH")
    }

    /// Makes one call: the answer is the standard output. Dropping the future kills the command and all it started.
    pub async fn ask(&self, question: &[u8]) -> Result<Answer<String>, CallError> {
        match tokio::time::timeout(self.timeout.into(), self.attempt(question)).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::Timeout),
        }
    }

    async fn attempt(&self, question: &[u8]) -> Result<Answer<String>, CallError> {
        let failed = |detail: String| CallError::Command { detail };
        let mut command = tokio::process::Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !self.directory.as_os_str().is_empty() {
            command.current_dir(&self.directory);
        }
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn().map_err(|error| failed(format!("it cannot be started: {error}")))?;
        let mut group = Group(child);
        let (stdin, stdout, stderr) = (group.0.stdin.take(), group.0.stdout.take(), group.0.stderr.take());
        let write = async move {
            if let Some(mut stdin) = stdin {
                // A command that does not read its question to the end may still know the answer.
                let _ = stdin.write_all(question).await;
            }
        };
        let read = read_all(stdout, MAX_BODY_BYTES);
        let ((), answer, complaint) = tokio::join!(write, read, read_all(stderr, MAX_COMPLAINT_BYTES));
        let status = group.0.wait().await.map_err(|error| failed(format!("it cannot be waited for: {error}")))?;
        judge(status, answer, &complaint)
    }
}

#[cfg(unix)]
fn is_executable(file: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.is_file() && file.permissions().mode() & 0o111 != 0
}

/// Elsewhere the name says whether a file is a program.
#[cfg(not(unix))]
fn is_executable(file: &Metadata) -> bool {
    file.is_file()
}

/// What the end of a command means.
fn judge(status: ExitStatus, answer: Vec<u8>, complaint: &[u8]) -> Result<Answer<String>, CallError> {
    let malformed = |detail: String| CallError::Malformed { what: "usable", detail, usage: None };
    if !status.success() {
        let said = one_line(&String::from_utf8_lossy(complaint));
        let detail = if said.is_empty() { status.to_string() } else { format!("{status}: {said}") };
        let may_pass = status.code() == Some(TEMPORARY_FAILURE);
        return Err(if may_pass { CallError::CommandBusy { detail } } else { CallError::Command { detail } });
    }
    if answer.len() >= MAX_BODY_BYTES {
        return Err(malformed(format!("it is longer than {MAX_BODY_BYTES} bytes")));
    }
    match String::from_utf8(answer) {
        Ok(value) => Ok(Answer { value, usage: None }),
        Err(_) => Err(malformed("it is not valid UTF-8".to_string())),
    }
}

/// What `stream` brings until it ends, of which `most` bytes are kept.
async fn read_all(stream: Option<impl AsyncRead + Unpin>, most: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut stream) = stream else { return kept };
    let mut chunk = vec![0; 8 << 10];
    // An error ends the stream like its end does: the exit code says how it went.
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..read.min(most - kept.len())]);
    }
    kept
}

/// A running command with all it started, which is killed when dropped before its end.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        // Not waited for yet, so the number still names this process; afterwards there is none.
        #[cfg(unix)]
        if let Some(pid) = self.0.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)) {
            // It may have ended by itself just now.
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        Command {
            program: PathBuf::from("sh"),
            arguments: vec!["-c".to_string(), script.to_string()],
            directory: PathBuf::new(),
            timeout: Duration::from_secs(60),
        }
    }

    #[tokio::test]
    async fn the_question_is_the_input_and_the_answer_is_the_output() {
        let answer = shell("tr a-z A-Z").ask(b"{\"row\":1}").await.unwrap();
        assert_eq!(answer.value, "{\"ROW\":1}");
        let answer = shell("echo deaf").ask(&vec![b'x'; 1 << 20]).await.unwrap();
        assert_eq!(answer.value, "deaf\n", "a command need not read its input");
    }

    #[tokio::test]
    async fn exit_code_75_may_pass_and_any_other_does_not() {
        let error = shell("echo later >&2; exit 75").ask(b"").await.unwrap_err();
        assert_eq!(error, CallError::CommandBusy { detail: "exit status: 75: later".to_string() });
        let error = shell("echo 'no\nsuch grade' >&2; exit 3").ask(b"").await.unwrap_err();
        assert_eq!(error.to_string(), "the command failed (exit status: 3: no such grade)");
        let missing = Command { program: PathBuf::from("/nowhere/judge"), ..shell("") };
        assert!(matches!(missing.ask(b"").await, Err(CallError::Command { .. })));
    }

    #[test]
    fn a_program_is_looked_for_without_being_started() {
        assert!(shell("exit 1").find().unwrap().is_absolute());
        let named = |program: &str| Command { program: PathBuf::from(program), ..shell("") };
        assert_eq!(named("no-such-judge-anywhere").find(), Err("which is in no directory of PATH"));
        assert_eq!(named("/nowhere/judge").find(), Err("which is not there"));
        assert_eq!(named("/").find(), Err("which is no executable file"));
        assert_eq!(named("/etc/passwd").find(), Err("which is no executable file"));
    }

    #[tokio::test]
    async fn an_answer_that_is_not_text_is_malformed() {
        let error = shell("printf '\\377'").ask(b"").await.unwrap_err();
        assert_eq!(error.to_string(), "the answer is not usable: it is not valid UTF-8");
    }

    #[tokio::test]
    async fn a_command_that_takes_too_long_is_killed_with_all_it_started() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let slow = Command { timeout: Duration::from_secs(2), ..shell(&script) };
        assert_eq!(slow.ask(b"").await, Err(CallError::Timeout));
        let pid: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        // Killed, and gone once whoever inherited it has taken note.
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_gone = || state().is_empty() || state().contains(") Z ") || state().contains(") X ");
        for _ in 0..200 {
            if is_gone() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert!(is_gone(), "{}", state());
    }
}
