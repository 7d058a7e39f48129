"""The chat template in plain Python, cut into pieces that do or do not carry loss.

`chat_template.jinja` is what the file ships; this does the same a hundred times faster for the generator.
`data.py --check` renders both and compares.
"""
import json

from tasks.sample import alone, plain

TOOLS_TAIL = ("\n</tools>\n\nTo call a function, reply with:\n<tool_call>\n<function=name>\n<parameter=key>\nvalue\n</parameter>\n"
              "</function>\n</tool_call>")
NO_THOUGHT = "<think>\n\n</think>\n\n"


def system_turn(messages, tools):
    first = messages[0]["content"].strip() if messages[0]["role"] == "system" else ""
    if tools:
        listed = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools)
        return f"<|im_start|>system\n# Tools\n\n<tools>{listed}{TOOLS_TAIL}" + (f"\n\n{first}" if first else "") + "<|im_end|>\n"
    return f"<|im_start|>system\n{first}<|im_end|>\n" if messages[0]["role"] == "system" else ""


def call_text(call):
    call = call["function"]
    lines = [f"<tool_call>\n<function={alone(call['name'])}>\n"]
    for name, value in call["arguments"].items():
        value = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"<parameter={alone(name)}>\n{value}\n</parameter>\n")
    return "".join(lines) + "</function>\n</tool_call>"


def reply_text(message):
    calls = "\n".join(map(call_text, message.get("tool_calls", ())))
    content = message["content"]
    return content + ("\n\n" if content and calls else "") + calls


def pieces(messages, tools=None, learn_history=False):
    """-> [kind, text]: kind is "prompt" (no loss), "thought" or "reply" (loss)."""
    out = [["prompt", system_turn(messages, tools)]]

    def prompt(text):
        if out[-1][0] == "prompt":
            out[-1][1] += text
        else:
            out.append(["prompt", text])

    last_query = max(i for i, m in enumerate(messages) if m["role"] == "user")
    for i, m in enumerate(messages):
        if m["role"] == "user":
            prompt(f"<|im_start|>user\n{m['content'].strip()}<|im_end|>\n")
        elif m["role"] == "tool":
            opened = messages[i - 1]["role"] == "tool"
            goes_on = i + 1 < len(messages) and messages[i + 1]["role"] == "tool"
            prompt(("" if opened else "<|im_start|>user") + f"\n<tool_response>\n{m['content']}\n</tool_response>"
                   + ("" if goes_on else "<|im_end|>\n"))
        elif m["role"] == "assistant":
            prompt("<|im_start|>assistant\n")
            reply = reply_text(m) + "<|im_end|>"
            if i < last_query:
                if learn_history:
                    out.append(["reply", reply])
                else:
                    prompt(reply)
            elif "reasoning_content" in m:
                prompt("<think>\n")
                out.append(["thought", m["reasoning_content"]])
                out.append(["reply", "\n</think>\n\n" + reply])
            else:
                prompt(NO_THOUGHT)
                out.append(["reply", reply])
            prompt("\n")
    return out


def render(messages, tools=None, thinking=True):
    """The prompt of a generation request."""
    text = "".join(text for _, text in pieces(messages, tools))
    return plain(text) + "<|im_start|>assistant\n" + ("<think>\n" if thinking else NO_THOUGHT)
