package server

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tallystick/oplog"
	"tallystick/query/artifact"
)

func quoteJSON(s string) string { return string(encodeString(s)) }

func artifactOf(t *testing.T, out map[string]any) map[string]any {
	t.Helper()
	a, ok := out["artifact"].(map[string]any)
	if !ok {
		t.Fatalf("no artifact in %v", out)
	}
	return a
}

func TestArtifactIsKeptByteForByte(t *testing.T) {
	e := newEnv(t)
	for _, content := range []string{"x", "a\r\nb\tc", "no newline", "late \u00e9\U0001f600\n", strings.Repeat("0123456789\n", 60_000)} {
		put := e.do(claude, "artifact_put", `{"kind":"log","content":`+quoteJSON(content)+`,"metadata":{"k":1}}`)
		a := artifactOf(t, put)
		if a["size_bytes"] != float64(len(content)) || a["created_by"] != "mac:claude:tally" || a["content_here"] != true || a["warnings"] != nil || put["replayed"] != false {
			t.Errorf("%.20q: %v", content, put)
		}
		got := e.do(codex, "artifact_get", `{"artifact_id":"`+a["id"].(string)+`"}`)
		if got["content"] != content || got["truncated"] != nil {
			t.Errorf("%.20q came back otherwise", content)
		}
	}
}

func TestArtifactParts(t *testing.T) {
	e := newEnv(t)
	content := "ab\u00e9cd"
	id := artifactOf(t, e.do(claude, "artifact_put", `{"kind":"note","content":`+quoteJSON(content)+`}`))["id"].(string)
	got, offset := "", 0.0
	for range 10 {
		part := e.do(claude, "artifact_get", `{"artifact_id":"`+id+`","max_bytes":4,"offset":`+string(encode(offset))+`}`)
		got += part["content"].(string)
		if part["truncated"] == nil {
			break
		}
		offset = part["next_offset"].(float64)
	}
	if got != content {
		t.Errorf("parts make %q", got)
	}
	if bad := e.refused(claude, "artifact_get", `{"artifact_id":"`+id+`","offset":3}`); bad.Code != CodeInvalidArgument {
		t.Errorf("offset in a character: %s", bad.JSON())
	}
	if bad := e.refused(claude, "artifact_get", `{"artifact_id":"`+id+`","offset":7}`); bad.Field != "offset" {
		t.Errorf("offset beyond the end: %s", bad.JSON())
	}
}

// TestA4_ArtifactLimits: every refusal names what to do, and stores nothing.
func TestA4_ArtifactLimits(t *testing.T) {
	e := newEnv(t)
	e.do(claude, "artifact_put", `{"kind":"file","content":`+quoteJSON(strings.Repeat("x", maxContent))+`}`)
	before := e.entries()
	for _, c := range []struct {
		session    Session
		tool, args string
		code       Code
		field      string
		hint       string
	}{
		{claude, "artifact_put", `{"kind":"file","content":` + quoteJSON(strings.Repeat("x", maxContent+1)) + `}`, CodeTooLarge, "content", "tally artifact put"},
		{claude, "artifact_put", `{"kind":"file","content":"` + strings.Repeat(`\u0001`, maxBigArgs/6) + `"}`, CodeTooLarge, "", "tally artifact put"},
		{claude, "artifact_put", `{"kind":"file","content":""}`, CodeInvalidArgument, "content", ""},
		{claude, "artifact_put", `{"kind":"file"}`, CodeInvalidArgument, "content", ""},
		{claude, "artifact_put", `{"kind":"exe","content":"x"}`, CodeInvalidArgument, "kind", ""},
		{claude, "artifact_put", `{"kind":"file","content":"a\u0000b"}`, CodeInvalidArgument, "", "NUL"},
		{claude, "artifact_put", `{"kind":"file","content":"a\ud800"}`, CodeInvalidArgument, "", ""},
		{claude, "artifact_put", "{\"kind\":\"file\",\"content\":\"\xff\"}", CodeInvalidArgument, "", ""},
		{claude, "artifact_put", `{"kind":"file","content":"x","metadata":[]}`, CodeInvalidArgument, "metadata", ""},
		{claude, "artifact_put", `{"kind":"file","content":"x","created_by":"mac:codex:tally"}`, CodeIdentityMismatch, "created_by", ""},
		{Session{}, "artifact_put", `{"kind":"file","content":"x"}`, CodeIdentityUnbound, "", ""},
		{claude, "patch_submit", `{"stream":"s","content":""}`, CodeInvalidArgument, "content", ""},
		{claude, "patch_submit", `{"stream":" ","content":"x\n"}`, CodeInvalidArgument, "stream", ""},
		{claude, "patch_submit", `{"stream":"s","room":"a\nb","content":"x\n"}`, CodeInvalidArgument, "room", ""},
		{claude, "patch_submit", `{"stream":"s","to_agent":"all","content":"x\n"}`, CodeInvalidArgument, "to_agent", ""},
		{claude, "artifact_get", `{"artifact_id":"art_20260101T000000_0123456789ab"}`, CodeNotFound, "artifact_id", ""},
		{claude, "artifact_get", `{"artifact_id":"art_of_another_make"}`, CodeNotFound, "artifact_id", ""},
		{claude, "artifact_get", `{"artifact_id":"evt_1"}`, CodeInvalidArgument, "artifact_id", ""},
	} {
		bad := e.refused(c.session, c.tool, c.args)
		if bad.Code != c.code || c.field != "" && bad.Field != c.field || !strings.Contains(bad.Hint, c.hint) {
			t.Errorf("%s %.60s: %s", c.tool, c.args, bad.JSON())
		}
	}
	if e.entries() != before {
		t.Error("a refused call left an entry")
	}
}

func TestPatchSubmitIsOneAppend(t *testing.T) {
	e := newEnv(t)
	out := e.do(claude, "patch_submit", `{"content":"--- a\r\n+++ b","stream":"project/x","to_agent":"mac:codex:tally","correlation_id":"task_1","branch":"b","base_commit":"f00dbabe","body":"please","metadata":{"n":1}}`)
	a, ev := artifactOf(t, out), out["event"].(map[string]any)
	if ids := ev["artifact_ids"].([]any); len(ids) != 1 || ids[0] != a["id"] {
		t.Errorf("the event names %v, the artifact is %v", ev["artifact_ids"], a["id"])
	}
	if ev["type"] != "patch.ready" || ev["status"] != "ready" || ev["room"] != "patches" || ev["body"] != "please" || ev["correlation_id"] != "task_1" {
		t.Errorf("event %v", ev)
	}
	if w := a["warnings"].([]any); len(w) != 2 || a["kind"] != "patch" {
		t.Errorf("artifact %v", a)
	}
	if got := e.do(codex, "artifact_get", `{"artifact_id":"`+a["id"].(string)+`"}`); got["content"] != "--- a\r\n+++ b" {
		t.Errorf("content %q", got["content"])
	}
	inbox := e.do(codex, "event_list", `{"to_agent":"@me"}`)
	if inbox["count"] != 1.0 {
		t.Errorf("inbox %v", inbox)
	}
	// What the event refuses takes the artifact with it.
	before := e.entries()
	e.refused(claude, "patch_submit", `{"content":"x\n","stream":"s","metadata":{"a":"`+strings.Repeat("x", maxMetadata)+`"}}`)
	if missing, _ := e.log.MissingBlobs(); e.entries() != before || len(missing) != 0 {
		t.Error("an orphan stays")
	}
}

// A2: the same key gives the first result, and stores no second content.
func TestA2_ArtifactRepeats(t *testing.T) {
	e := newEnv(t)
	for _, c := range []struct{ tool, first, second string }{
		{"artifact_put", `{"kind":"note","content":"one","idempotency_key":"k"}`, `{"kind":"note","content":"two","idempotency_key":"k"}`},
		{"patch_submit", `{"stream":"s","content":"three\n","idempotency_key":"k"}`, `{"stream":"s","content":"four\n","idempotency_key":"k"}`},
	} {
		a := e.do(claude, c.tool, c.first)
		before := e.entries()
		b := e.do(claude, c.tool, c.second)
		if b["replayed"] != true || artifactOf(t, a)["id"] != artifactOf(t, b)["id"] || e.entries() != before {
			t.Errorf("%s again: %v", c.tool, b)
		}
	}
	for _, unwanted := range []string{"two", "four\n"} {
		h, _, err := e.log.PutBlob(t.Context(), strings.NewReader(unwanted), -1)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.log.DropBlob(t.Context(), h); err != nil || e.log.HasBlob(h) {
			t.Errorf("an entry names %q", unwanted)
		}
	}
}

// An id on an event must be known here; its content need not be. Order is
// kept and repeats are dropped.
func TestEventNamesKnownArtifacts(t *testing.T) {
	e := newEnv(t)
	one := artifactOf(t, e.do(claude, "artifact_put", `{"kind":"note","content":"one"}`))["id"].(string)
	two := artifactOf(t, e.do(claude, "artifact_put", `{"kind":"note","content":"two"}`))["id"].(string)
	list := func(ids ...string) string {
		return `{"type":"status","stream":"s","room":"r","artifact_ids":` + string(encode(ids)) + `}`
	}
	ev := e.do(claude, "event_append", list(two, one, two))["event"].(map[string]any)
	if got := ev["artifact_ids"].([]any); !slices.Equal(got, []any{two, one}) {
		t.Errorf("artifact_ids %v", got)
	}
	before := e.entries()
	if bad := e.refused(claude, "event_append", list(one, "art_20260101T000000_0123456789ab")); bad.Code != CodeNotFound || bad.Field != "artifact_ids" {
		t.Errorf("unknown: %s", bad.JSON())
	}
	if e.entries() != before {
		t.Error("the refused event is there")
	}

	// Another replica has the entry and not the content.
	other := newEnvOf(t, 8)
	rg, err := e.log.ReadRange(e.log.Self().ID, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.log.Ingest(t.Context(), rg); err != nil {
		t.Fatal(err)
	}
	got := other.do(claude, "artifact_get", `{"artifact_id":"`+one+`"}`)
	if a := artifactOf(t, got); a["content_here"] != false || a["note"] == nil || got["content"] != nil {
		t.Errorf("content that is not here: %v", got)
	}
	other.do(claude, "event_append", list(one))
	missing, _ := other.log.MissingBlobs()
	for _, m := range missing {
		data, size, err := e.log.BlobChunk(m.Hash, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.log.PutChunk(t.Context(), m.Hash, size, 0, data); err != nil {
			t.Fatal(err)
		}
	}
	if got := other.do(claude, "artifact_get", `{"artifact_id":"`+one+`"}`); got["content"] != "one" {
		t.Errorf("after it arrived: %v", got)
	}
}

// Over the socket any bytes pass, up to 64 MiB, and what does not arrive as it
// was stored is an error.
func TestArtifactsOverTheSocket(t *testing.T) {
	e := newEnv(t)
	run := t.TempDir()
	socket, err := ListenSocket(run, e.svc)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	c, err := Dial(t.Context(), ClientOptions{RunDir: run})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	data := make([]byte, 9<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	reads := 0
	open := func(b []byte) func() (io.Reader, error) {
		return func() (io.Reader, error) { reads++; return bytes.NewReader(b), nil }
	}
	put := func(b []byte, q ArtifactPut) (artifactStored, error) {
		q.Session, q.Size = claude, int64(len(b))
		raw, err := c.PutArtifact(t.Context(), q, open(b))
		var out artifactStored
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		return out, err
	}
	out, err := put(data, ArtifactPut{Kind: "file", Metadata: json.RawMessage(`{"name":"x.bin"}`), OpID: "once"})
	if err != nil || out.Artifact.Size != int64(len(data)) || out.Replayed || reads != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	again, err := put(data, ArtifactPut{Kind: "file", OpID: "once"})
	if err != nil || !again.Replayed || again.Artifact.ID != out.Artifact.ID {
		t.Errorf("again: %+v, %v", again, err)
	}
	var back bytes.Buffer
	raw, err := c.GetArtifact(t.Context(), ArtifactGet{Session: codex, ID: out.Artifact.ID}, &back)
	var rec artifact.Record
	if err != nil || json.Unmarshal(raw, &rec) != nil || rec.SHA256 != out.Artifact.SHA256 || !bytes.Equal(back.Bytes(), data) {
		t.Fatalf("%d bytes came back, %+v, %v", back.Len(), rec, err)
	}
	for _, bad := range []struct {
		data []byte
		q    ArtifactPut
		code Code
	}{
		{nil, ArtifactPut{Kind: "file"}, CodeInvalidArgument},
		{data, ArtifactPut{Kind: "exe"}, CodeInvalidArgument},
		{data, ArtifactPut{Kind: "file", Metadata: json.RawMessage(`[]`)}, CodeInvalidArgument},
		{make([]byte, artifact.MaxContent+1), ArtifactPut{Kind: "file"}, CodeTooLarge},
	} {
		if _, err := put(bad.data, bad.q); err == nil || AsError(err).Code != bad.code {
			t.Errorf("%+v: %v", bad.q, err)
		}
	}
	// Less than announced is not stored.
	short := ArtifactPut{Session: claude, Kind: "file", Size: 10}
	if _, err := c.PutArtifact(t.Context(), short, open([]byte("nine bytes")[:9])); err == nil {
		t.Error("content that is too short was stored")
	}
	if _, err := c.GetArtifact(t.Context(), ArtifactGet{ID: "art_20260101T000000_0123456789ab"}, io.Discard); AsError(err).Code != CodeNotFound {
		t.Errorf("unknown: %v", err)
	}
	list, err := c.Artifacts(t.Context(), ArtifactQuery{})
	var page artifact.Page
	if err != nil || json.Unmarshal(list, &page) != nil || page.Count != 1 || page.Artifacts[0].ID != out.Artifact.ID {
		t.Errorf("list %s, %v", list, err)
	}
	// A tool cannot show it: it is too large, and no text.
	if bad := e.refused(claude, "artifact_get", `{"artifact_id":"`+rec.ID+`"}`); bad.Code != CodeTooLarge || !strings.Contains(bad.Hint, "tally artifact get "+rec.ID) {
		t.Errorf("%s", bad.JSON())
	}
	if bad := e.refused(claude, "artifact_get", `{"artifact_id":"`+rec.ID+`","max_bytes":1000}`); bad.Code != CodeInvalidArgument || !strings.Contains(bad.Hint, "tally artifact get") {
		t.Errorf("%s", bad.JSON())
	}
	if e.log.HasBlob(oplog.Hash{}) {
		t.Error("a blob without content")
	}
}
