//! Tools whose work is done outside the runtime. [`Jobs`] is that outside: here a loop in the same process, which shares
//! nothing with the runtime but the store, and after a restart finds there what it has not done yet.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use mcp_tasks::{
    CreateContext, PollContext, TaskError, TaskOptions, TaskTool, Tasks,
    store::{Document, StoreError, TaskStore},
    task::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::Notify, time::sleep};

use super::required;

/// How often jobs that other processes took on are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// A job outside that takes `ms`.
#[derive(Deserialize, JsonSchema)]
struct External {
    job: String,
    ms: u64,
}

pub(super) fn tools(jobs: &Jobs) -> Vec<TaskTool> {
    let jobs = jobs.clone();
    vec![
        required("external")
            .description("Hands its task to a job system, which completes it later")
            .input::<External>()
            .create(move |cx: CreateContext, External { job, ms }| {
                let jobs = jobs.clone();
                async move {
                    let task = cx.create_task(TaskOptions::new()).await?;
                    let due = Timestamp::now().plus_millis(ms);
                    let task_id = task.id().to_string();
                    jobs.add(&Job { task_id, job, due }).await?;
                    Ok::<_, TaskError>(task)
                }
            }),
        required("external_polled")
            .description("A job whose state is worked out when somebody asks; the job \"bad\" cannot be asked about")
            .input::<External>()
            .create(async |cx: CreateContext, External { .. }| {
                cx.create_task(TaskOptions::new()).await
            })
            .on_get(async |cx: PollContext| ask_job(&cx, "get").await)
            .on_result(async |cx: PollContext| ask_job(&cx, "result").await),
    ]
}

/// Completes the task if its job is over by now.
async fn ask_job(cx: &PollContext, what: &str) -> Result<(), TaskError> {
    let External { job, ms } = cx.request().arguments.parse()?;
    if job == "bad" {
        return Err(TaskError::internal(format!(
            "the job system has no {what} for {job}"
        )));
    }
    if Timestamp::now() >= cx.record().created_at.plus_millis(ms) {
        cx.handle().complete(format!("{job} is done")).await?;
    }
    Ok(())
}

/// What has to be done: complete a task when it is due.
#[derive(Serialize, Deserialize)]
struct Job {
    task_id: String,
    job: String,
    due: Timestamp,
}

/// The job system: a queue of documents, numbered without gaps, in the task store. They are kept for good; jobs whose
/// tasks have ended are passed over.
#[derive(Clone)]
pub(crate) struct Jobs {
    store: Arc<dyn TaskStore>,
    /// All numbers below this are taken.
    taken: Arc<AtomicU64>,
    added: Arc<Notify>,
}

impl Jobs {
    pub(crate) fn new(store: Arc<dyn TaskStore>) -> Self {
        Self {
            store,
            taken: Arc::default(),
            added: Arc::default(),
        }
    }

    /// Takes a job on: from here on it outlives this process.
    async fn add(&self, job: &Job) -> Result<(), TaskError> {
        let document = Document {
            body: serde_json::to_vec(job)?,
            expires_at: None,
        };
        loop {
            let number = self.taken.load(Ordering::Acquire);
            let kept = self
                .store
                .put_document_if_absent(&key(number), document.clone())
                .await?;
            self.taken.fetch_max(number + 1, Ordering::AcqRel);
            // Otherwise somebody else, perhaps in another process, was there first.
            if kept.body == document.body {
                self.added.notify_one();
                return Ok(());
            }
        }
    }

    /// Does every job in the queue, old and new. Several processes may: a task is completed once.
    pub(crate) async fn work(self, tasks: Tasks) {
        let mut next = 0;
        loop {
            match self.get(next).await {
                Ok(Some(job)) => {
                    next += 1;
                    self.taken.fetch_max(next, Ordering::AcqRel);
                    tokio::spawn(perform(tasks.clone(), job));
                    continue;
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "jobs cannot be looked for"),
            }
            tokio::select! {
                () = self.added.notified() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    async fn get(&self, number: u64) -> Result<Option<Job>, StoreError> {
        let Some(document) = self.store.get_document(&key(number)).await? else {
            return Ok(None);
        };
        serde_json::from_slice(&document.body)
            .map(Some)
            .map_err(|e| StoreError::new("reading a job", e))
    }
}

fn key(number: u64) -> String {
    format!("fixture/external/{number}")
}

/// Waits until the job is due, and completes its task; unless that ends before.
async fn perform(tasks: Tasks, job: Job) {
    let done = async {
        let Some(handle) = tasks.handle(&job.task_id).await? else {
            return Ok(false);
        };
        tokio::select! {
            ended = handle.ended() => {
                ended?;
                Ok(false)
            }
            () = sleep(Timestamp::now().until(job.due)) => {
                handle.complete(format!("{} is done", job.job)).await
            }
        }
    };
    if let Err(error) = done.await {
        tracing::warn!(?error, task = job.task_id, "a job was not completed");
    }
}
