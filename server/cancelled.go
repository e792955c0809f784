package server

import (
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// pendingCalls are the requests of a connection that have no answer yet. MCP asks
// that none is sent for a request that its client has cancelled; the SDK ends the
// call and answers it all the same, so that answer is kept back.
type pendingCalls struct {
	mu sync.Mutex
	of map[string]bool // by id; true when cancelled
}

const methodCancelled = "notifications/cancelled"

func idKey(id jsonrpc.ID) string { return string(encode(id.Raw())) }

// came notes what a message from the client means for its calls. A cancellation
// of what is not pending means nothing: it came too late.
func (p *pendingCalls) came(msg jsonrpc.Message) {
	req, ok := msg.(*jsonrpc.Request)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if req.ID.IsValid() {
		if p.of == nil {
			p.of = map[string]bool{}
		}
		p.of[idKey(req.ID)] = false
		return
	}
	if req.Method != methodCancelled {
		return
	}
	var params struct {
		RequestID any `json:"requestId"`
	}
	if json.Unmarshal(req.Params, &params) != nil {
		return
	}
	id, err := jsonrpc.MakeID(params.RequestID)
	if err != nil || !id.IsValid() {
		return
	}
	if _, pending := p.of[idKey(id)]; pending {
		p.of[idKey(id)] = true
	}
}

// leaves reports whether a message may go to the client.
func (p *pendingCalls) leaves(msg jsonrpc.Message) bool {
	resp, ok := msg.(*jsonrpc.Response)
	if !ok {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := idKey(resp.ID)
	cancelled := p.of[key]
	delete(p.of, key)
	return !cancelled
}
