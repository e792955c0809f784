package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// meanings is an OpenAI-style embeddings endpoint that knows two meanings.
type meanings struct{ asked atomic.Int64 }

func (m *meanings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model string   `json:"model"`
		Input []string `json:"input"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/embeddings" || req.Model != "tiny" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	m.asked.Add(1)
	type item struct {
		Object    string    `json:"object"`
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}
	out := struct {
		Object string `json:"object"`
		Data   []item `json:"data"`
	}{Object: "list"}
	for i, text := range req.Input {
		v := []float32{0.01, 0.01}
		for axis, words := range []string{"airship zeppelin", "recipe cookie"} {
			for word := range strings.FieldsSeq(words) {
				if strings.Contains(strings.ToLower(text), word) {
					v[axis]++
				}
			}
		}
		out.Data = append(out.Data, item{"embedding", i, v})
	}
	json.NewEncoder(w).Encode(out)
}

// TestEmbeddings: search by meaning is off until an endpoint on this machine is
// named; then what it finds is added and nothing is hidden; when it is away,
// the words alone answer and say so.
func TestEmbeddings(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	m := &meanings{}
	srv := httptest.NewServer(m)
	defer srv.Close()
	h := newHost(t, &loopback{addr: map[string]string{}}, "a")
	type row struct {
		Text string `json:"text"`
		Why  string `json:"why"`
	}
	type page struct {
		Facts []row    `json:"facts"`
		Notes []string `json:"notes"`
	}
	found := func() (texts []string, p page) {
		t.Helper()
		p = get[page](h, "memory", "search", "zeppelin")
		for _, f := range p.Facts {
			texts = append(texts, f.Text)
		}
		slices.Sort(texts)
		return texts, p
	}
	h.start()
	h.run("memory", "add", "an airship hangs in the hall")
	h.run("memory", "add", "zeppelin is a name for a dish of potatoes")
	words := []string{"zeppelin is a name for a dish of potatoes"}
	if got, p := found(); !slices.Equal(got, words) || len(p.Notes) != 0 || m.asked.Load() != 0 {
		t.Errorf("off: %q, %v, asked %d times", got, p.Notes, m.asked.Load())
	}
	h.stop()

	t.Setenv("TALLY_EMBED_URL", srv.URL+"/v1/embeddings")
	t.Setenv("TALLY_EMBED_MODEL", "tiny")
	h.start()
	both := append([]string{"an airship hangs in the hall"}, words...)
	eventually(t, "a hit by meaning", time.Minute, func() (bool, string) {
		got, p := found()
		return slices.Equal(got, both), fmt.Sprint(got, p.Notes)
	})
	_, p := found()
	for _, f := range p.Facts {
		if byWords := strings.Contains(f.Why, "words"); byWords != (f.Text == words[0]) || !strings.Contains(f.Why, "meaning") {
			t.Errorf("%s: %s", f.Text, f.Why)
		}
	}

	srv.Close()
	got, p := found()
	if !slices.Equal(got, words) || len(p.Notes) == 0 || !strings.Contains(p.Notes[0], "the vector arm did not run") {
		t.Errorf("the endpoint is away: %q, notes %q", got, p.Notes)
	}
	h.run("memory", "add", "written while the endpoint is away: zeppelin")
	if got, _ := found(); len(got) != 2 {
		t.Errorf("a write without the endpoint: %q", got)
	}
}
