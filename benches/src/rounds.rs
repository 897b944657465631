//! A plain call of 2026-07-28: answered at once, and in two rounds with a question between (`basic/patterns/mrtr`).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use mcp_tasks::store::MemoryStore;

use crate::{
    Fallible, Plan,
    load::{Conn, next_id, runtime},
    measure::{grouped, median, micros, percentile, ratio, table},
    messages::{Template, answers, has},
    serve::{listen, nodelay, plane, tasks},
};

pub(crate) fn run(plan: &Plan) -> Fallible<()> {
    let serving = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let addr = serving.block_on(async {
        let app = plane(&tasks(Arc::new(MemoryStore::new()))?)?;
        let listener = listen().await?;
        let addr = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(nodelay(listener), app).await });
        Fallible::Ok(addr)
    })?;
    let (mut plain, mut asked, mut times) = (Vec::new(), Vec::new(), Vec::new());
    runtime()?.block_on(async {
        let mut conn = Conn::open(addr).await?;
        for _ in 0..plan.rounds {
            let (mut one, mut two) = (Vec::new(), Vec::new());
            for _ in 0..plan.pick(200, 20) {
                one.push(call(&mut conn).await?);
                two.push(question(&mut conn).await?);
            }
            let middle = |times: &[Duration]| median(times.iter().map(Duration::as_secs_f64));
            times.push(middle(&two) / middle(&one));
            plain.append(&mut one);
            asked.append(&mut two);
        }
        Fallible::Ok(())
    })?;
    let row = |name: &str, times: &mut Vec<Duration>| {
        times.sort_unstable();
        vec![
            name.to_owned(),
            grouped(times.len()),
            micros(percentile(times, 50)),
            micros(percentile(times, 99)),
        ]
    };
    let rows = [
        row("a plain call", &mut plain),
        row(
            "one that asks: question, then retry with the answer",
            &mut asked,
        ),
    ];
    table(
        "## Plain calls of 2026-07-28 over HTTP, one connection",
        &["what", "how many", "median", "p99"],
        &rows,
    );
    println!("\nwith a question: {} times as long", ratio(median(times)));
    Ok(())
}

async fn ask(conn: &mut Conn, template: &Template, wanted: &str) -> Fallible<String> {
    let (id, mut request) = (next_id(), Vec::new());
    template.write(id, "", &mut request);
    let (head, body) = conn.ask(&request).await?;
    if head.status != 200 || !answers(body, id) || !has(body, wanted.as_bytes()) {
        return Err(format!("{head:?}: {}", String::from_utf8_lossy(body)).into());
    }
    Ok(String::from_utf8_lossy(body).into_owned())
}

async fn call(conn: &mut Conn) -> Fallible<Duration> {
    let template = Template::plain("quick", "");
    let began = Instant::now();
    ask(conn, &template, r#""resultType":"complete""#).await?;
    Ok(began.elapsed())
}

async fn question(conn: &mut Conn) -> Fallible<Duration> {
    let template = Template::plain("curious", "");
    let began = Instant::now();
    let asked = ask(conn, &template, r#""resultType":"input_required""#).await?;
    let state = asked
        .split_once(r#""requestState":""#)
        .and_then(|(_, rest)| rest.split_once('"'))
        .ok_or("no state")?
        .0;
    let more = format!(
        r#","requestState":"{state}","inputResponses":{{"input-1":{{"action":"accept","content":{{}}}}}}"#
    );
    ask(
        conn,
        &Template::plain("curious", &more),
        r#""resultType":"complete""#,
    )
    .await?;
    Ok(began.elapsed())
}
