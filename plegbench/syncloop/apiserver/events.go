package apiserver

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// eventTimeout bounds a call about an event: its callers, of client-go's record, hand no context down. Events that
// cannot be sent meanwhile are dropped there.
const eventTimeout = 10 * time.Second

// Events writes events; it is a record.EventSink of client-go.
type Events struct{ client *Client }

// Events is where events go.
func (c *Client) Events() Events { return Events{c} }

// Create creates an event.
func (e Events) Create(event *v1.Event) (*v1.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	return do[v1.Event](ctx, e.client.events.Post().Namespace(event.Namespace).Resource("events").Body(event))
}

// Update replaces an event.
func (e Events) Update(event *v1.Event) (*v1.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	return do[v1.Event](ctx, e.client.events.Put().Namespace(event.Namespace).Resource("events").Name(event.Name).Body(event))
}

// Patch changes an event: its count, and when it was last seen.
func (e Events) Patch(event *v1.Event, patch []byte) (*v1.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), eventTimeout)
	defer cancel()
	return do[v1.Event](ctx, e.client.events.Patch(types.StrategicMergePatchType).
		Namespace(event.Namespace).Resource("events").Name(event.Name).Body(patch))
}
