//! `/v1/responses`, as OpenAI's clients send it: answered, kept for a while, shown and removed.

use super::answer::{EventWire, KeepResponse, ResponseFormat, response_of};
use super::compaction::CompactionFormat;
use super::memory::SocketMemory;
use super::references::refers_to_at_most;
use super::request::{ResponsesBody, ResponsesRequest};
use crate::clock::unix_seconds;
use crate::database::DatabaseError;
use crate::http::app::App;
use crate::http::edge::keys::auth::{Caller, viewer};
use crate::http::edge::shares::Share;
use crate::http::intake::bodies::{INLINE_BYTES, ParsedBody, more_room, take};
use crate::http::intake::page::limit_and_order;
use crate::http::intake::written::written;
use crate::http::reply::converse::{converse, prompt_of_chat};
use crate::http::wire::error::ApiError;
use crate::http::wire::refusals::{database_error, unavailable};
use crate::limits;
use crate::responses::KeptResponse;
use crate::turn::options::ChatRequest;
use crate::turn::prompts::work;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use chimere_engine::ids::KeyId;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// `POST /v1/responses`: answers a conversation and keeps the answer if that is asked for.
pub(super) async fn create(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let asked = asked(&app, &request, payload, ResponsesBody::read).await?;
    answered(&app, &request, asked, None).await
}

/// Answers a request for a response, which a socket remembers.
pub(super) async fn answered(
    app: &web::Data<App>,
    request: &HttpRequest,
    asked: ParsedBody<ResponsesRequest>,
    memory: Option<&SocketMemory>,
) -> Result<HttpResponse, ApiError> {
    let ParsedBody { asked, bytes, room } = asked;
    let (asked, format) = formatted(app, request, asked, memory);
    converse(app, request, ParsedBody { asked, bytes, room }, format, "resp_").await.map_err(of_input)
}

/// `POST /v1/responses/compact`: a summary in the place of a conversation.
pub(super) async fn compact(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let read = |body: &[u8]| ResponsesBody::read(body)?.compacted();
    let ParsedBody { asked, bytes, room } = asked(&app, &request, payload, read).await?;
    let (asked, format) = formatted(&app, &request, asked, None);
    let format = CompactionFormat(format);
    converse(&app, &request, ParsedBody { asked, bytes, room }, format, "resp_").await.map_err(of_input)
}

/// A request for a turn, and the form of its response.
fn formatted(
    app: &web::Data<App>,
    request: &HttpRequest,
    asked: ResponsesRequest,
    memory: Option<&SocketMemory>,
) -> (ChatRequest, ResponseFormat) {
    let ResponsesRequest { chat, items, store, thoughts, shows_results, shows_urls, namespaces, warms, mut echo } =
        asked;
    let listed = listed_servers(&items);
    let keep = if store || memory.is_some() { keep(app, request, &items, (store, memory)) } else { None };
    echo.insert("store".into(), (store && keep.is_some()).into());
    let wire = if memory.is_some() { EventWire::Lines } else { EventWire::Sse };
    (chat, ResponseFormat { echo, namespaces, thoughts, shows_results, shows_urls, listed, keep, wire, warms })
}

/// Servers whose tools an item of the conversation lists.
fn listed_servers(items: &[Value]) -> HashSet<String> {
    let lists = items.iter().filter(|item| item["type"] == "mcp_list_tools");
    lists.filter_map(|item| item["server_label"].as_str().map(str::to_owned)).collect()
}

/// `POST /v1/responses/input_tokens`: how many tokens a request's prompt has, without an answer.
pub(super) async fn input_tokens(
    app: web::Data<App>,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, ApiError> {
    let ParsedBody { asked, bytes, room: _room } = asked(&app, &request, payload, ResponsesBody::read).await?;
    let prompt = prompt_of_chat(&app, &request, (asked.chat, bytes)).await.map_err(of_input)?;
    Ok(HttpResponse::Ok().json(json!({"object": "response.input_tokens", "input_tokens": prompt.ids.len()})))
}

/// `GET /v1/responses/{id}`: as it was answered.
pub(super) async fn show(
    app: web::Data<App>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let stored = find(&app, Caller::of(&request).key, &id)?.ok_or_else(|| no_such(&id))?;
    Ok(HttpResponse::Ok().content_type("application/json").body(stored.response.to_vec()))
}

/// `GET /v1/responses/{id}/input_items`: the conversation before it, a page at a time.
pub(super) async fn input_items(
    app: web::Data<App>,
    request: HttpRequest,
    id: web::Path<String>,
    page: web::Query<HashMap<String, String>>,
) -> Result<HttpResponse, ApiError> {
    let stored = find(&app, Caller::of(&request).key, &id)?.ok_or_else(|| no_such(&id))?;
    let (page, holder) = (Page::of(&page)?, app.holder(&request));
    let mut room: Option<Share> = None;
    more_room(&app, &mut room, holder, &stored.items)?;
    // As large as a body, which takes as long to take apart.
    let bytes = stored.items.len();
    let list = move || serde_json::to_vec(&listed(&id, &stored.items, &page));
    written(&app, holder, bytes, list).await
}

/// A page of a response's items, which are an array.
fn listed(id: &str, items: &[u8], page: &Page) -> Value {
    let items: Vec<Value> = serde_json::from_slice(items).unwrap_or_default();
    let mut items: Vec<Value> = items.into_iter().enumerate().map(|(at, item)| shown(id, at, item)).collect();
    if page.newest_first {
        items.reverse();
    }
    let after =
        page.after.as_ref().and_then(|after| items.iter().position(|item| item["id"] == *after)).map_or(0, |at| at + 1);
    let rest = items.split_off(after.min(items.len()));
    let (more, data) = (rest.len() > page.limit, rest.into_iter().take(page.limit).collect::<Vec<_>>());
    let end = |item: Option<&Value>| item.map(|item| item["id"].clone());
    let (first, last) = (end(data.first()), end(data.last()));
    json!({"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": more})
}

/// Which part of a list is wanted.
struct Page {
    limit: usize,
    newest_first: bool,
    after: Option<String>,
}

impl Page {
    fn of(query: &HashMap<String, String>) -> Result<Self, ApiError> {
        let (limit, newest_first) = limit_and_order(query, (limits::RESPONSE_ITEMS, limits::RESPONSE_ITEMS_MAX))?;
        Ok(Self { limit, newest_first, after: query.get("after").cloned() })
    }
}

/// An item as it is listed: with an id, and its text in parts.
fn shown(response: &str, at: usize, mut item: Value) -> Value {
    let Some(fields) = item.as_object_mut() else { return item };
    let reply = response.trim_start_matches("resp_");
    fields.entry("id").or_insert_with(|| format!("in_{reply}{at:02}").into());
    fields.entry("type").or_insert_with(|| "message".into());
    if let Some(Value::String(text)) = fields.get("content") {
        let kind = if fields.get("role") == Some(&json!("assistant")) { "output_text" } else { "input_text" };
        fields.insert("content".into(), json!([{"type": kind, "text": text}]));
    }
    item
}

/// `DELETE /v1/responses/{id}`. It is removed from the disk too when this answers.
pub(super) async fn delete(
    app: web::Data<App>,
    request: HttpRequest,
    id: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    let within = Duration::from_secs(limits::RESPONSE_REMOVE_SECONDS);
    let removed = app.responses.remove(Caller::of(&request).key, &id, unix_seconds());
    let removed = actix_rt::time::timeout(within, removed).await.map_err(|_| disk_is_slow(within))?;
    if !removed.map_err(|e| store_error(&e))? {
        return Err(no_such(&id));
    }
    Ok(HttpResponse::Ok().json(json!({"id": *id, "object": "response.deleted", "deleted": true})))
}

/// There is none of this id for the caller, whosever it may be.
fn no_such(id: &str) -> ApiError {
    ApiError::unknown_name("response", id, "response_not_found")
}

fn disk_is_slow(within: Duration) -> ApiError {
    let message =
        format!("the removal was not on the disk within {} s; ask whether it is gone later", within.as_secs());
    unavailable(&message, "disk_slow")
}

fn store_error(error: &DatabaseError) -> ApiError {
    database_error("responses", error)
}

/// One of the account's responses, if it is there.
fn find(app: &App, owner: KeyId, id: &str) -> Result<Option<KeptResponse>, ApiError> {
    app.responses.get(owner, id, unix_seconds()).map_err(|e| store_error(&e))
}

/// Errors about a conversation name the field that it came in.
fn of_input(error: ApiError) -> ApiError {
    error.renamed(&[("messages", "input")])
}

/// Reads a body, and what was said before it.
async fn asked(
    app: &web::Data<App>,
    request: &HttpRequest,
    payload: web::Payload,
    read: fn(&[u8]) -> Result<ResponsesBody, ApiError>,
) -> Result<ParsedBody<ResponsesRequest>, ApiError> {
    let parsed = take(app, request, payload, move |body, _| read(body)).await?;
    continued(app, request, parsed, None).await
}

/// Puts a body behind what was said before it, in a response that is kept or that its socket remembers.
pub(super) async fn continued(
    app: &web::Data<App>,
    request: &HttpRequest,
    parsed: ParsedBody<ResponsesBody>,
    memory: Option<&SocketMemory>,
) -> Result<ParsedBody<ResponsesRequest>, ApiError> {
    let (owner, holder) = (Caller::of(request).key, app.holder(request));
    let ParsedBody { asked: body, bytes, mut room } = parsed;
    let remembered = memory.zip(body.previous.as_deref()).and_then(|(memory, id)| memory.take(id));
    let (body, named) = referred(app, owner, body)?;
    let stored = match remembered {
        None => body.previous.as_deref().map(|id| previous(app, owner, id)).transpose()?,
        remembered => remembered,
    };
    let bytes = bytes + stored.as_ref().map_or(0, |stored| stored.items.len() + stored.response.len());
    let bytes = bytes + named.iter().map(|named| named.response.len()).sum::<usize>();
    for named in &named {
        more_room(app, &mut room, holder, &named.response)?;
    }
    if let Some(stored) = &stored {
        more_room(app, &mut room, holder, &stored.items)?;
        more_room(app, &mut room, holder, &stored.response)?;
    }
    let (model, viewer) = (app.clone(), viewer(request));
    let job = move || {
        let items = items_of(&named);
        let body = body.resolved(|id| items.get(id).cloned())?;
        body.checked(stored.as_ref().map_or_else(Vec::new, said), &model.limits.seen_by(&viewer))
    };
    Ok(ParsedBody { asked: work(&app.turns.lanes, holder, bytes, bytes <= INLINE_BYTES, job).await??, bytes, room })
}

/// The caller's responses that have the items which a body refers to.
fn referred(app: &App, owner: KeyId, body: ResponsesBody) -> Result<(ResponsesBody, Vec<KeptResponse>), ApiError> {
    let ids: BTreeSet<String> = body.referred().iter().flat_map(|item| response_of(item)).collect();
    // An id may be read in two ways, of which one leads nowhere.
    let found = ids.iter().filter_map(|id| find(app, owner, id).transpose()).take(limits::RESPONSE_REFERRED_MAX + 1);
    let found: Vec<KeptResponse> = found.collect::<Result<_, _>>()?;
    refers_to_at_most("responses", found.len(), limits::RESPONSE_REFERRED_MAX)?;
    Ok((body, found))
}

/// What came out in these responses, by id.
fn items_of(responses: &[KeptResponse]) -> HashMap<String, Value> {
    let output = responses.iter().filter_map(|kept| match serde_json::from_slice(&kept.response) {
        Ok(Value::Object(mut response)) => response.remove("output"),
        _ => None,
    });
    let items = output.filter_map(|output| if let Value::Array(items) = output { Some(items) } else { None });
    items.flatten().filter_map(|item| Some((item["id"].as_str()?.to_owned(), item))).collect()
}

fn previous(app: &App, owner: KeyId, id: &str) -> Result<KeptResponse, ApiError> {
    find(app, owner, id)?.ok_or_else(|| {
        let shown: String = id.chars().take(64).collect();
        let message =
            format!("there is no response {shown:?} here to go on from: it was not kept, or its time is over");
        let error = ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message);
        ApiError { param: Some("previous_response_id".into()), ..error }.with_code("previous_response_not_found")
    })
}

/// The items up to and with a response.
fn said(stored: &KeptResponse) -> Vec<Value> {
    let mut items: Vec<Value> = serde_json::from_slice(&stored.items).unwrap_or_default();
    let response: Value = serde_json::from_slice(&stored.response).unwrap_or_default();
    items.extend(response["output"].as_array().cloned().unwrap_or_default());
    items
}

/// What keeps a response when it is whole, with the items before it: in the store, in a socket's memory, or in both.
/// `None` where there is no room for them meanwhile, or where the conversation is larger than any body may be.
fn keep(
    app: &web::Data<App>,
    request: &HttpRequest,
    items: &[Value],
    (store, memory): (bool, Option<&SocketMemory>),
) -> Option<KeepResponse> {
    let items: Arc<[u8]> = serde_json::to_vec(items).ok()?.into();
    let share: Share = app.bodies.room.take(app.holder(request), items.len())?;
    let (app, owner, memory) = (app.clone(), Caller::of(request).key, memory.cloned());
    (items.len() <= app.bodies.bytes_max).then(|| {
        Box::new(move |id: &str, response: &Value| {
            let stored = KeptResponse { items, response: response.to_string().into_bytes().into() };
            if let Some(memory) = memory {
                memory.put(id, stored.clone());
            }
            let kept = store && app.responses.put(owner, id, stored, unix_seconds());
            if store && !kept {
                tracing::warn!(
                    response = id,
                    "a response was not kept: it is too large, too many come at once, or the disk takes none"
                );
            }
            drop(share);
            kept
        }) as KeepResponse
    })
}
