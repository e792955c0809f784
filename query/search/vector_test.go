package search_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tallystick/oplog"
	"tallystick/query/search"
)

// model is a fake endpoint that knows three meanings.
type model struct {
	calls atomic.Int64
	texts atomic.Int64
	fail  atomic.Bool
	dims  atomic.Int64
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.calls.Add(1)
	var req struct {
		Model string   `json:"model"`
		Input []string `json:"input"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Model != "tiny" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	if m.fail.Load() {
		http.Error(w, "model is loading", http.StatusServiceUnavailable)
		return
	}
	m.texts.Add(int64(len(req.Input)))
	type item struct {
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}
	var out struct {
		Data []item `json:"data"`
	}
	for i, text := range req.Input {
		v := make([]float32, max(3, m.dims.Load()))
		for axis, words := range []string{"car automobile vehicle", "bread bakery loaf", "server daemon"} {
			for _, word := range strings.Fields(words) {
				if strings.Contains(strings.ToLower(text), word) {
					v[axis]++
				}
			}
		}
		v[0] += 0.01
		// Any order is allowed.
		out.Data = append([]item{{i, v}}, out.Data...)
	}
	json.NewEncoder(w).Encode(out)
}

func endpoint(t *testing.T) (*model, *search.Endpoint) {
	t.Helper()
	m := new(model)
	srv := httptest.NewServer(m)
	t.Cleanup(srv.Close)
	e, err := search.NewEndpoint(srv.URL+"/v1/embeddings", "tiny")
	if err != nil {
		t.Fatal(err)
	}
	return m, e
}

func TestVectors_UnionNeverGate(t *testing.T) {
	m, e := endpoint(t)
	x, err := search.Open(t.Context(), search.Config{Vectorizer: e})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := x.Put(t.Context(),
		note("meaning", "an automobile stood in the yard"),
		note("word", "the car-shaped cookie"),
		note("other", "a loaf from the bakery"),
	); err != nil {
		t.Fatal(err)
	}
	res := find(t, x, search.Query{Text: "vehicle cookie"})
	got := ids(res)
	if !strings.Contains(got, "meaning") || !strings.Contains(got, "word") || strings.Join(res.Arms, " ") != "words vectors" {
		t.Fatalf("%q by %v", got, res.Arms)
	}
	for _, h := range res.Hits {
		if h.ID == "meaning" && (h.Why.VectorRank == 0 || h.Why.LexicalRank != 0) || h.ID == "word" && h.Why.LexicalRank != 1 {
			t.Errorf("%s: %+v", h.ID, h.Why)
		}
	}
	if got := ids(find(t, x, search.Query{Text: "vehicle cookie", NoVectors: true})); got != "word" {
		t.Errorf("without vectors %q", got)
	}
	// Filters hold for both arms.
	if res := find(t, x, search.Query{Text: "vehicle cookie", Filter: search.Filter{Kinds: []string{"x"}}}); len(res.Hits) != 0 {
		t.Errorf("filtered %q", ids(res))
	}
	// A model that is away takes only its arm with it.
	m.fail.Store(true)
	res = find(t, x, search.Query{Text: "vehicle cookie"})
	if ids(res) != "word" || len(res.Arms) != 1 || len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "503") {
		t.Errorf("%q by %v: %v", ids(res), res.Arms, res.Notes)
	}
	// Vectors of another length are refused, not mixed in.
	m.fail.Store(false)
	m.dims.Store(7)
	if err := x.Put(t.Context(), note("seven", "seven dimensions")); err == nil {
		t.Error("a vector of another length was taken")
	}
}

func TestVectors_FollowTheLogAndAreKept(t *testing.T) {
	m, e := endpoint(t)
	l := openLog(t)
	write(t, l, "n1", "live", "an automobile")
	write(t, l, "n2", "live", "a loaf")
	dir := t.TempDir()
	cfg := search.Config{Log: l, Sources: []search.Source{source(1)}, Dir: dir, Key: make([]byte, 32), Vectorizer: e}
	x := openIndex(t, cfg)
	if err := x.CatchUpVectors(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := ids(find(t, x, search.Query{Text: "vehicle"})); got != "n1" && !strings.HasPrefix(got, "n1 ") {
		t.Errorf("by meaning %q", got)
	}
	if st := x.Status().Vectors; st == nil || st.Documents != 2 || st.Behind != 0 {
		t.Errorf("status %+v", st)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	seen := m.texts.Load()
	x = openIndex(t, cfg)
	write(t, l, "n1", "forgotten", "")
	write(t, l, "n3", "live", "a vehicle, forgotten by nobody")
	if err := x.CatchUpVectors(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := m.texts.Load() - seen; got != 1 {
		t.Errorf("%d texts embedded after the restart, want 1", got)
	}
	if res := find(t, x, search.Query{Text: "automobile"}); strings.Contains(ids(res), "n1") || !strings.Contains(ids(res), "n3") {
		t.Errorf("after the restart %q", ids(res))
	}
}

// asked is a Vectorizer that calls during once, while it makes the first vectors.
type asked struct {
	once   sync.Once
	during func()
	mu     sync.Mutex
	texts  []string
}

func (*asked) Name() string { return "asked" }

func (a *asked) Embed(_ context.Context, texts []string, query bool) ([][]float32, error) {
	if !query {
		a.mu.Lock()
		a.texts = append(a.texts, texts...)
		a.mu.Unlock()
		a.once.Do(a.during)
	}
	return slices.Repeat([][]float32{{1, 2, 3}}, len(texts)), nil
}

// TestM1_VectorsOfWhatIsThere: a text that takes another's place, and an index
// that is emptied, while a model is asked: each document ends with the vector of
// its own text.
func TestM1_VectorsOfWhatIsThere(t *testing.T) {
	for _, c := range []struct {
		name   string
		during func(x *search.Index, l *oplog.Log)
		want   string
	}{
		{"another text", func(x *search.Index, l *oplog.Log) {
			write(t, l, "n1", "live", "a loaf")
			if err := x.CatchUp(t.Context()); err != nil {
				t.Error(err)
			}
		}, "a loaf"},
		{"emptied", func(x *search.Index, _ *oplog.Log) {
			if err := x.Rebuild("a person asked"); err != nil {
				t.Error(err)
			}
		}, "an automobile"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openLog(t)
			v := &asked{}
			x := openIndex(t, search.Config{Log: l, Sources: []search.Source{source(1)}, Vectorizer: v})
			v.during = func() { c.during(x, l) }
			write(t, l, "n1", "live", "an automobile")
			for range 2 { // the second sees what was written during the first
				if err := x.CatchUpVectors(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if st := x.Status().Vectors; st.Documents != 1 || st.Behind != 0 {
				t.Errorf("status %+v", st)
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.texts[len(v.texts)-1] != c.want {
				t.Errorf("vectors were made of %q", v.texts)
			}
		})
	}
}

func TestEndpoint_StaysOnThisMachine(t *testing.T) {
	for _, u := range []string{"http://example.com/v1/embeddings", "http://10.0.0.1:80/", "ftp://127.0.0.1/", "::", "http://127.0.0.1.example.com/"} {
		if _, err := search.NewEndpoint(u, "m"); err == nil {
			t.Errorf("%s was taken", u)
		}
	}
	for _, u := range []string{"http://127.0.0.1:11434/v1/embeddings", "http://[::1]:1/", "http://localhost:8080/"} {
		if _, err := search.NewEndpoint(u, "m"); err != nil {
			t.Errorf("%s: %v", u, err)
		}
	}
	if _, err := search.NewEndpoint("http://127.0.0.1:1/", ""); err == nil {
		t.Error("no model was taken")
	}
	away := httptest.NewServer(http.RedirectHandler("http://example.com/", http.StatusTemporaryRedirect))
	defer away.Close()
	e, err := search.NewEndpoint(away.URL, "m")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Embed(t.Context(), []string{"x"}, false); err == nil {
		t.Error("a redirect was followed")
	}
}

func TestEndpoint_BadAnswers(t *testing.T) {
	for _, body := range []string{``, `{}`, `{"data":[{"index":5,"embedding":[1]}]}`, `{"data":[{"index":0,"embedding":[]}]}`, `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}`, `<html>`} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) }))
		e, err := search.NewEndpoint(srv.URL, "m")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Embed(t.Context(), []string{"x"}, true); err == nil {
			t.Errorf("%s was taken", body)
		}
		srv.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e, err := search.NewEndpoint("http://127.0.0.1:1/", "m")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Embed(ctx, []string{"x"}, true); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: %v", err)
	}
}
