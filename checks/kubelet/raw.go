package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
)

// maxPods bounds a list of pods, in bytes.
const maxPods = 64 << 20

// A Document is an answer as JSON, and its URL.
type Document struct {
	URL  string
	JSON []byte
}

// Configz returns the configuration that the kubelet runs with, from its server on 10250.
func Configz(ctx context.Context, root string, s Settings, given Credentials) (Document, error) {
	c, err := openServer(ctx, root, s, given)
	if err != nil {
		return Document{}, err
	}
	defer c.client.CloseIdleConnections()
	d, err := c.document(ctx, "/configz")
	if err == nil {
		d.JSON, err = configOf(d.JSON)
	}
	return d, err
}

// configOf returns the configuration in an answer of /configz.
func configOf(body []byte) ([]byte, error) {
	var doc struct {
		Config json.RawMessage `json:"kubeletconfig"`
	}
	if json.Unmarshal(body, &doc) != nil || len(doc.Config) == 0 {
		return nil, errors.New("no configuration")
	}
	return doc.Config, nil
}

// Pods returns the kubelet's pods, a PodList as JSON, from its read-only port on this node.
func Pods(ctx context.Context, port int) ([]byte, error) {
	c := newClient("http://127.0.0.1:"+strconv.Itoa(port), nil)
	defer c.client.CloseIdleConnections()
	c.most = maxPods
	r, err := c.getOK(ctx, "/pods")
	if err != nil {
		return nil, fmt.Errorf("%s/pods: %s", c.base, reasonUnanswered(err))
	}
	return r.body, nil
}

// NodeDocuments asks the API server, as this node, for the node's object and the events about it. Each has its own
// error: the node authorizer lets a node read its object and not the events.
func NodeDocuments(ctx context.Context, root string, s Settings) (node, events Document, errNode, errEvents error) {
	c, unknown, err := newAPIClient(root, s)
	if err = errors.Join(err, unknown); err != nil {
		return node, events, err, err
	}
	defer c.client.CloseIdleConnections()
	node, errNode = c.document(ctx, "/api/v1/nodes/"+url.PathEscape(s.NodeName))
	about := url.Values{
		"fieldSelector": {"involvedObject.kind=Node,involvedObject.name=" + s.NodeName}, "limit": {"500"},
	}
	events, errEvents = c.document(ctx, "/api/v1/events?"+about.Encode())
	return node, events, errNode, errEvents
}

// document asks for JSON, and indents it.
func (c serverClient) document(ctx context.Context, path string) (Document, error) {
	d := Document{URL: c.base + path}
	r, err := c.getOK(ctx, path)
	if err != nil {
		return d, errors.New(reasonUnanswered(err))
	}
	var b bytes.Buffer
	if err := json.Indent(&b, r.body, "", "  "); err != nil {
		return d, errors.New("the answer is not JSON")
	}
	d.JSON = append(b.Bytes(), '\n')
	return d, nil
}
