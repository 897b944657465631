//! The scenarios.

use std::time::Duration;

use mcp_tasks::client::{
    CallOptions, TaskClientError, TaskEvent, TaskInfo, TaskPreference, TaskStatus, Ticket,
};
use rmcp::model::{CallToolRequestParams, CallToolResult};
use serde_json::Value;

use crate::{Run, Target, connect, profile::Call};

const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

pub(crate) const NAMES: &[&str] = &[
    "optional_as_task",
    "optional_auto_without_options",
    "optional_plain_call",
    "plain_tool",
    "required_without_task",
    "ask_first",
    "ask_stream",
    "ask_manual_poll",
    "result_opened_first",
    "failed",
    "cancel",
    "list_and_errors",
    "status_notifications",
    "client_hosted_task",
    "many_at_once",
    "ttl_expiry",
    "resume",
];

pub(crate) async fn play(name: &str, run: &mut Run) {
    match name {
        "optional_as_task" => optional_as_task(run).await,
        "optional_auto_without_options" => optional_auto_without_options(run).await,
        "optional_plain_call" => optional_plain_call(run).await,
        "plain_tool" => plain_tool(run).await,
        "required_without_task" => required_without_task(run).await,
        "ask_first" => ask_first(run).await,
        "ask_stream" => ask_stream(run).await,
        "ask_manual_poll" => ask_manual_poll(run).await,
        "result_opened_first" => result_opened_first(run).await,
        "failed" => failed(run).await,
        "cancel" => cancel(run).await,
        "list_and_errors" => list_and_errors(run).await,
        "status_notifications" => status_notifications(run).await,
        "client_hosted_task" => client_hosted_task(run).await,
        "many_at_once" => many_at_once(run).await,
        "ttl_expiry" => ttl_expiry(run).await,
        "resume" => resume(run).await,
        other => run.check(other, false, || "no such scenario".to_owned()),
    }
}

fn params((tool, arguments): &Call) -> CallToolRequestParams {
    let params = CallToolRequestParams::new(*tool);
    match arguments {
        Value::Object(arguments) => params.with_arguments(arguments.clone()),
        _ => params,
    }
}

fn text(result: &CallToolResult) -> String {
    serde_json::to_string(&result.content).unwrap_or_default()
}

fn task() -> CallOptions {
    CallOptions::new().ttl(Duration::from_secs(30))
}

fn shown<T>(result: &Result<T, TaskClientError>) -> String {
    match result {
        Ok(_) => "no error".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

/// All events, and a line about each.
async fn events(run: &Run, call: &Call) -> (Vec<TaskEvent>, String) {
    let mut stream = run.client.call_tool_stream(params(call), task());
    let (mut events, mut line) = (Vec::new(), String::new());
    while let Some(event) = stream.next().await {
        line += &match &event {
            TaskEvent::Created(info) => format!("created({}) ", info.status),
            TaskEvent::Status(info) => format!("status({}) ", info.status),
            TaskEvent::Progress(step) => format!("progress({}) ", step.progress),
            TaskEvent::Result(result) => format!("result({:?}) ", result.is_error),
            other => format!("{other:?} "),
        };
        events.push(event);
    }
    println!("   {line}");
    (events, line)
}

async fn optional_as_task(run: &mut Run) {
    let Some(call) = run.profile.optional.clone() else {
        return;
    };
    let (events, line) = events(run, &call).await;
    run.check(
        "the first event is the created task",
        matches!(events.first(), Some(TaskEvent::Created(_))),
        || line.clone(),
    );
    let says = run.profile.says;
    let good =
        matches!(events.last(), Some(TaskEvent::Result(result)) if text(result).contains(says));
    run.check("the last is the result", good, || line.clone());
    let last = events.iter().filter(|event| event.is_last()).count();
    run.check("there is one end", last == 1, || line);
    if run.modern() {
        // Nothing in the result says that there was a task.
        return;
    }
    let named = match (events.first(), events.last()) {
        (Some(TaskEvent::Created(info)), Some(TaskEvent::Result(result))) => {
            let meta = serde_json::to_value(&result.meta).unwrap_or_default();
            meta[RELATED_TASK]["taskId"] == *info.task_id
        }
        _ => false,
    };
    run.check("the result names its task", named, || {
        format!("{:?}", events.last())
    });
}

async fn optional_auto_without_options(run: &mut Run) {
    let Some(call) = run.profile.optional.clone() else {
        return;
    };
    let options = CallOptions::new();
    let mut stream = run.client.call_tool_stream(params(&call), options);
    let first = stream.next().await;
    run.check(
        "an optional tool is called as a task by itself",
        matches!(first, Some(TaskEvent::Created(_))),
        || format!("{first:?}"),
    );
    let ended = stream.result().await;
    run.check("and ends", ended.is_ok(), || shown(&ended));
}

async fn optional_plain_call(run: &mut Run) {
    let Some(call) = run.profile.optional.clone() else {
        return;
    };
    let never = CallOptions::new().task(TaskPreference::Never);
    let result = run.client.call_tool_with(params(&call), never).await;
    let says = run.profile.says_plainly;
    let good = matches!(&result, Ok(result) if text(result).contains(says));
    run.check("an optional tool called plainly", good, || shown(&result));
}

async fn plain_tool(run: &mut Run) {
    let call = run.profile.plain.clone();
    let result = run.client.call_tool(params(&call)).await;
    let good = matches!(&result, Ok(result) if text(result).contains("one"));
    run.check("a plain tool", good, || shown(&result));
    let always = CallOptions::new().task(TaskPreference::Always);
    let result = run.client.call_tool_with(params(&call), always).await;
    if run.modern() {
        // The server decides.
        let good = matches!(&result, Ok(result) if text(result).contains("one"));
        run.check("a result is taken where a task was wanted", good, || {
            shown(&result)
        });
        let options = CallOptions::new();
        let result = run.client.call_tool_task(params(&call), options).await;
        let good = matches!(&result, Err(TaskClientError::Immediate(_)));
        run.check("and told where it was insisted on", good, || shown(&result));
        return;
    }
    let good = matches!(&result, Err(TaskClientError::Rpc(error)) if error.code.0 == -32601);
    run.check("a task of a plain tool is refused (-32601)", good, || {
        shown(&result)
    });
    let result = run
        .client
        .call_tool_task(params(&call), CallOptions::new())
        .await;
    let good = matches!(&result, Err(TaskClientError::TasksUnsupported(_)));
    run.check("our client knows that beforehand", good, || shown(&result));
}

async fn required_without_task(run: &mut Run) {
    let Some(call) = run.profile.required.clone() else {
        return;
    };
    let never = CallOptions::new().task(TaskPreference::Never);
    let result = run.client.call_tool_with(params(&call), never).await;
    let (code, name) = match run.modern() {
        true => (-32021, "a required task is required (-32021)"),
        false => (-32601, "a required task is required (-32601)"),
    };
    let good = matches!(&result, Err(TaskClientError::Rpc(error)) if error.code.0 == code);
    run.check(name, good, || shown(&result));
    let result = run.client.call_tool(params(&call)).await;
    let (says, answer) = (run.profile.says, run.profile.answer);
    let good = matches!(&result, Ok(result) if text(result).contains(says) || text(result).contains(answer));
    run.check("our client makes it a task by itself", good, || {
        shown(&result)
    });
}

/// The checks of a call that asked.
fn asked_once(run: &mut Run, id: Option<&str>, result: &Result<CallToolResult, TaskClientError>) {
    let (answer, asked) = (run.profile.answer, run.person.asked());
    let good = matches!(result, Ok(result) if text(result).contains(answer));
    run.check("the answer is in the result", good, || match result {
        Ok(result) => text(result),
        Err(error) => format!("{error:?}"),
    });
    run.check("asked exactly once", asked == 1, || {
        format!("asked {asked} times")
    });
    let questions = run
        .person
        .asked
        .lock()
        .map(|asked| asked.clone())
        .unwrap_or_default();
    let related = questions
        .first()
        .and_then(|question| question["_meta"][RELATED_TASK]["taskId"].as_str());
    run.check(
        "the question names its task",
        id.is_some() && related == id,
        || format!("{questions:?}"),
    );
}

/// Without a task, the call is answered with the question and made again.
async fn ask_first(run: &mut Run) {
    let call = run.profile.ask_first.clone();
    let Some(call) = call.filter(|_| run.modern()) else {
        return;
    };
    run.person.forget();
    let never = CallOptions::new().task(TaskPreference::Never);
    let result = run.client.call_tool_with(params(&call), never).await;
    let (answer, asked) = (run.profile.answer, run.person.asked());
    let good = matches!(&result, Ok(result) if text(result).contains(answer));
    run.check("a call that asks first has its answer", good, || {
        shown(&result)
    });
    run.check("it asked exactly once", asked == 1, || {
        format!("asked {asked} times")
    });
}

async fn ask_stream(run: &mut Run) {
    run.person.forget();
    let call = run.profile.ask.clone();
    let (events, _) = events(run, &call).await;
    let id = match events.first() {
        Some(TaskEvent::Created(info)) => Some(info.task_id.clone()),
        _ => None,
    };
    let result = match events.into_iter().last() {
        Some(TaskEvent::Result(result)) => Ok(result),
        Some(TaskEvent::Error(error)) => Err(error),
        _ => Err(TaskClientError::Closed),
    };
    asked_once(run, id.as_deref(), &result);
}

async fn ask_manual_poll(run: &mut Run) {
    run.person.forget();
    let made = run
        .client
        .call_tool_task(params(&run.profile.ask), task())
        .await;
    let Ok(remote) = made else {
        return run.check("a task is made", false, || shown(&made));
    };
    let mut trace = Vec::new();
    loop {
        match remote.get().await {
            Ok(info) => {
                let ready = info.status != TaskStatus::Working;
                trace.push(info.status.to_string());
                if ready || run.person.asked() > 0 {
                    break;
                }
                tokio::time::sleep(info.poll_interval.unwrap_or(Duration::from_millis(200))).await;
            }
            Err(error) => return run.check("tasks/get", false, || format!("{error:?}")),
        }
    }
    trace.dedup();
    println!("   {}", trace.join(" > "));
    let result = remote.result().await;
    asked_once(run, Some(remote.id()), &result);
    let again = remote.result().await;
    let same = matches!((&result, &again), (Ok(one), Ok(two)) if text(one) == text(two));
    run.check("the result is there again", same, || shown(&again));
    run.check(
        "and nothing asked again",
        run.person.asked() == 1,
        String::new,
    );
}

async fn result_opened_first(run: &mut Run) {
    run.person.forget();
    let made = run
        .client
        .call_tool_task(params(&run.profile.ask), task())
        .await;
    let Ok(remote) = made else {
        return run.check("a task is made", false, || shown(&made));
    };
    let result = remote.result().await;
    asked_once(run, Some(remote.id()), &result);
}

async fn failed(run: &mut Run) {
    let Some(call) = run.profile.fail.clone() else {
        return;
    };
    let (events, line) = events(run, &call).await;
    let failed = events
        .iter()
        .any(|event| matches!(event, TaskEvent::Status(info) if info.status == TaskStatus::Failed));
    run.check("the status is failed", failed, || line.clone());
    let says = run.profile.fails_with;
    let own = match events.last() {
        Some(TaskEvent::Result(result)) => {
            result.is_error == Some(true) && text(result).contains(says)
        }
        Some(TaskEvent::Error(TaskClientError::Rpc(error))) => error.message.contains(says),
        _ => false,
    };
    run.check("what the tool itself said is told", own, || {
        format!("{:?}", events.last())
    });
}

async fn cancel(run: &mut Run) {
    let Some(call) = run.profile.forever.clone() else {
        return;
    };
    let made = run.client.call_tool_task(params(&call), task()).await;
    let Ok(remote) = made else {
        return run.check("a task is made", false, || shown(&made));
    };
    let waiting = remote.clone();
    let waiting = tokio::spawn(async move { waiting.result().await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let cancelled = remote.cancel().await;
    let good = matches!(&cancelled, Ok(info) if info.status == TaskStatus::Cancelled);
    run.check("tasks/cancel tells of the cancelled task", good, || {
        format!("{cancelled:?}")
    });
    let again = remote.cancel().await;
    let good = matches!(&again, Ok(info) if info.status == TaskStatus::Cancelled);
    run.check("a second cancel tells how it ended", good, || {
        format!("{again:?}")
    });
    let after = remote.get().await;
    let good = matches!(&after, Ok(info) if info.status == TaskStatus::Cancelled);
    run.check("it stays cancelled", good, || format!("{after:?}"));
    let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    let good = matches!(&ended, Ok(Ok(Err(TaskClientError::Cancelled { .. }))));
    run.check("who waits is told that it was cancelled", good, || {
        format!("{ended:?}")
    });
}

async fn list_and_errors(run: &mut Run) {
    let call = run
        .profile
        .optional
        .clone()
        .or(run.profile.required.clone());
    let Some(call) = call else { return };
    let mut ids = Vec::new();
    for _ in 0..12 {
        match run.client.call_tool_task(params(&call), task()).await {
            Ok(remote) => ids.push(remote.id().to_owned()),
            Err(error) => return run.check("a task is made", false, || format!("{error:?}")),
        }
    }
    let listed = run.client.list_tasks().await;
    let all = match run.modern() {
        true => matches!(&listed, Err(TaskClientError::TasksUnsupported(_))),
        false => {
            matches!(&listed, Ok(tasks) if ids.iter().all(|id| tasks.iter().any(|task| task.task_id == *id)))
        }
    };
    let name = match run.modern() {
        true => "there is no tasks/list",
        false => "tasks/list has them all",
    };
    run.check(name, all, || {
        format!("{:?}", listed.map(|tasks| tasks.len()))
    });
    let nobody = run.client.task("nope");
    for (name, error) in [
        (
            "tasks/get of an unknown task (-32602)",
            nobody.get().await.map(drop),
        ),
        (
            "tasks/result of an unknown task (-32602)",
            nobody.result().await.map(drop),
        ),
        (
            "tasks/cancel of an unknown task (-32602)",
            nobody.cancel().await.map(drop),
        ),
    ] {
        let good = matches!(&error, Err(TaskClientError::Rpc(error)) if error.code.0 == -32602);
        run.check(name, good, || shown(&error));
    }
}

async fn status_notifications(run: &mut Run) {
    let call = run
        .profile
        .optional
        .clone()
        .or(run.profile.required.clone());
    let Some(call) = call else { return };
    let made = run.client.call_tool_task(params(&call), task()).await;
    let Ok(remote) = made else {
        return run.check("a task is made", false, || shown(&made));
    };
    let ended = remote.result().await;
    let mine = |all: &[TaskInfo]| -> Vec<TaskStatus> {
        let mine = all.iter().filter(|info| info.task_id == remote.id());
        mine.map(|info| info.status).collect()
    };
    let mut heard = run.announced.subscribe();
    let last = heard.wait_for(|all| mine(all).last().is_some_and(|status| status.is_terminal()));
    let announced = tokio::time::timeout(Duration::from_secs(5), last).await;
    let announced = announced.is_ok_and(|told| told.is_ok());
    let told = format!("announced: {:?}", mine(&run.announced.borrow()));
    println!("   {told}");
    run.check("its end is announced", announced, || told);
    run.check("and it ends", ended.is_ok(), || shown(&ended));
}

async fn client_hosted_task(run: &mut Run) {
    // 2026-07-28 has no tasks of clients.
    let hosted = run.profile.hosted.clone();
    for hosted in hosted
        .into_iter()
        .filter(|_| !run.modern())
        .collect::<Vec<_>>()
    {
        run.person.forget();
        let (tool, _) = hosted.call;
        let result = run.client.call_tool(params(&hosted.call)).await;
        let told = match &result {
            Ok(result) => text(result),
            Err(error) => format!("{error:?}"),
        };
        println!("   {tool}: {told}");
        let good = result.is_ok() && hosted.says.iter().all(|says| told.contains(says));
        run.check(
            &format!("{tool}: a task of ours gave the answer"),
            good,
            || told,
        );
        let asked = run.person.asked();
        run.check(
            &format!("{tool}: our handler was asked once"),
            asked == 1,
            || format!("asked {asked} times"),
        );
    }
}

async fn many_at_once(run: &mut Run) {
    let Some(call) = run.profile.optional.clone() else {
        return;
    };
    let calls = (0..8).map(|_| {
        let (client, params) = (run.client.clone(), params(&call));
        tokio::spawn(async move { client.call_tool_with(params, task()).await })
    });
    let calls: Vec<_> = calls.collect();
    let mut wrong = Vec::new();
    for call in calls {
        match call.await {
            Ok(Ok(result)) if text(&result).contains(run.profile.says) => {}
            other => wrong.push(format!("{other:?}")),
        }
    }
    run.check("eight calls at once end well", wrong.is_empty(), || {
        wrong.join(", ")
    });
}

async fn ttl_expiry(run: &mut Run) {
    let Some(call) = run.profile.optional.clone() else {
        return;
    };
    let options = CallOptions::new().ttl(Duration::from_millis(400));
    let made = run.client.call_tool_task(params(&call), options).await;
    let Ok(remote) = made else {
        return run.check("a task is made", false, || shown(&made));
    };
    let granted = remote.info().and_then(|info| info.ttl);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let ended = remote.result().await;
    println!("   granted {granted:?}, then {}", shown(&ended));
    let good = matches!(&ended, Ok(_) | Err(TaskClientError::Expired { .. }));
    run.check(
        "a task past its time is expired, or still there",
        good,
        || shown(&ended),
    );
}

async fn resume(run: &mut Run) {
    // Another process of a stdio server would know nothing of the task.
    let call = run.profile.optional.clone();
    let (Target::Url(_), Some(call)) = (&run.target, call) else {
        return;
    };
    let first = match connect(
        &run.target,
        run.bearer.as_deref(),
        run.protocol,
        &run.person,
        &run.announced,
    )
    .await
    {
        Ok(client) => client,
        Err(error) => return run.check("a second client", false, || format!("{error:?}")),
    };
    let made = first.call_tool_task(params(&call), task()).await;
    let ticket = match &made {
        Ok(remote) => remote.ticket().to_json(),
        Err(_) => return run.check("a task is made", false, || shown(&made)),
    };
    first.close().await;
    let resumed = Ticket::from_json(&ticket).and_then(|ticket| run.client.resume(&ticket));
    let ended = match resumed {
        Ok(remote) => remote.result().await,
        Err(error) => Err(error),
    };
    let says = run.profile.says;
    let good = matches!(&ended, Ok(result) if text(result).contains(says));
    run.check("another client goes on with the ticket", good, || {
        shown(&ended)
    });
}
