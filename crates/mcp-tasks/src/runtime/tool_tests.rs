use super::*;
use rmcp::model::ToolAnnotations;

fn built(tool: TaskTool) -> ToolEntry {
    tool.run(async |_: TaskContext, _: Value| Ok::<_, TaskError>(()))
        .build(&Limits::default())
        .unwrap()
}

fn listed(tool: TaskTool) -> Value {
    built(tool).listed.parse().unwrap()
}

// F-01, F-02
#[test]
fn what_is_not_said_has_its_default() {
    let tool = built(TaskTool::new("count"));
    let schema = json!({"type": "object"});
    let plain = json!({"name": "count", "description": "count", "inputSchema": schema});
    assert_eq!(tool.plain.parse::<Value>().unwrap(), plain);
    assert_eq!(
        tool.listed.parse::<Value>().unwrap(),
        json!({"name": "count", "description": "count", "inputSchema": schema,
            "execution": {"taskSupport": "required"}})
    );
    assert_eq!(
        (tool.support, tool.recovery),
        (TaskSupport::Required, Recovery::Fail)
    );
}

// F-01, F-02
#[test]
fn what_is_said_is_listed() {
    #[derive(serde::Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Args {
        /// How far.
        steps: u32,
    }
    let mut meta = MetaObject::new();
    meta.insert("com.example/x".into(), json!(1));
    let tool = listed(
        TaskTool::new("count")
            .title("Count")
            .description("Counts slowly")
            .input::<Args>()
            .output::<Args>()
            .annotations(ToolAnnotations::new().read_only(true))
            .icons(vec![Icon::new("https://example.com/i.png")])
            .meta(meta)
            .support(TaskSupport::Optional),
    );
    assert_eq!(tool["title"], "Count");
    assert_eq!(tool["description"], "Counts slowly");
    assert_eq!(tool["inputSchema"]["required"], json!(["steps"]));
    assert_eq!(
        tool["inputSchema"]["properties"]["steps"]["description"],
        "How far."
    );
    assert_eq!(tool["outputSchema"]["required"], json!(["steps"]));
    assert_eq!(tool["annotations"]["readOnlyHint"], true);
    assert_eq!(tool["icons"][0]["src"], "https://example.com/i.png");
    assert_eq!(tool["_meta"]["com.example/x"], 1);
    assert_eq!(tool["execution"]["taskSupport"], "optional");
    let forbidden = listed(TaskTool::new("t").support(TaskSupport::Forbidden));
    assert_eq!(forbidden["execution"]["taskSupport"], "forbidden");
}

// F-01: an empty type says that there are no arguments, not that they are null
#[test]
fn an_empty_type_is_an_object() {
    #[derive(serde::Deserialize, JsonSchema)]
    struct Nothing {}
    #[derive(serde::Deserialize, JsonSchema)]
    struct Unit;
    for tool in [
        TaskTool::new("t").input::<Nothing>(),
        TaskTool::new("t").input::<Unit>(),
        TaskTool::new("t").input::<()>(),
        TaskTool::new("t").input::<Value>(),
    ] {
        assert_eq!(listed(tool)["inputSchema"]["type"], "object");
    }
}

// F-01: an output schema that 2025-11-25 does not know is left out of its list only
#[test]
fn an_output_that_is_no_object_is_for_the_newer_revision_only() {
    let tool = built(TaskTool::new("t").output::<Vec<u32>>());
    assert!(
        tool.listed
            .parse::<Value>()
            .unwrap()
            .get("outputSchema")
            .is_none()
    );
    assert_eq!(
        tool.plain.parse::<Value>().unwrap()["outputSchema"]["type"],
        "array"
    );
}
