package search

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Endpoint is a Vectorizer that asks an OpenAI-style embeddings endpoint on
// this machine, as Ollama and llama.cpp offer one.
type Endpoint struct {
	// URL is where to post, such as http://127.0.0.1:11434/v1/embeddings. Only
	// loopback addresses are taken: texts do not leave the machine.
	URL   string
	Model string
	// QueryPrefix and TextPrefix are put before questions and documents, for
	// models trained with them.
	QueryPrefix, TextPrefix string
	// Client replaces the HTTP client, for tests.
	Client *http.Client
}

// NewEndpoint checks the address.
func NewEndpoint(rawURL, model string) (*Endpoint, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("search: embeddings address: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || model == "" {
		return nil, errors.New("search: embeddings want an http address and a model")
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("search: embeddings address %s is not on this machine", u.Host)
	}
	return &Endpoint{URL: rawURL, Model: model}, nil
}

// Name is the address and the model.
func (e *Endpoint) Name() string { return e.URL + "#" + e.Model + "#" + e.TextPrefix }

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 20

// Embed asks for the vectors of some texts.
func (e *Endpoint) Embed(ctx context.Context, texts []string, question bool) ([][]float32, error) {
	prefix := e.TextPrefix
	if question {
		prefix = e.QueryPrefix
	}
	input := make([]string, len(texts))
	for i, t := range texts {
		input[i] = prefix + t
	}
	body, err := json.Marshal(map[string]any{"model": e.Model, "input": input, "encoding_format": "float"})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	client := e.Client
	if client == nil {
		client = &http.Client{Timeout: time.Minute, Transport: loopback(), CheckRedirect: noRedirect}
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxAnswer {
		return nil, fmt.Errorf("answer over %d bytes", maxAnswer)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("endpoint answered %s: %.200q", res.Status, raw)
	}
	var answer struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return nil, fmt.Errorf("answer: %w", err)
	}
	out := make([][]float32, len(texts))
	for _, d := range answer.Data {
		if d.Index < 0 || d.Index >= len(out) || out[d.Index] != nil {
			return nil, fmt.Errorf("answer names text %d of %d", d.Index, len(out))
		}
		out[d.Index] = d.Embedding
	}
	for i, v := range out {
		if len(v) == 0 {
			return nil, fmt.Errorf("answer has no vector for text %d", i)
		}
	}
	return out, nil
}

func noRedirect(*http.Request, []*http.Request) error {
	return errors.New("the endpoint may not redirect")
}

// loopback dials only addresses of this machine, whatever a name says, and
// uses no proxy.
func loopback() *http.Transport {
	d := net.Dialer{Timeout: 5 * time.Second}
	return &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if a, ok := c.RemoteAddr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
			c.Close()
			return nil, fmt.Errorf("%s is not on this machine", addr)
		}
		return c, nil
	}, DisableKeepAlives: true}
}
