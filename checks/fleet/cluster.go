package fleet

import (
	"errors"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/kdiag/kdiag/plegbench/syncloop/apiserver"
)

// A Cluster is a way to the API server of a cluster. It is safe for use by several goroutines.
type Cluster struct {
	core   rest.Interface // /api/v1; its AbsPath reaches all else, as JSON
	leases rest.Interface
	params runtime.ParameterCodec
}

// Connect returns a Cluster, which has asked nothing yet. The error is of the configuration.
func Connect(cfg *rest.Config) (*Cluster, error) {
	scheme := apiserver.Scheme()
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.WarningHandler = "kdiag", rest.NoWarnings{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return metered{next} })
	cfg.QPS = -1 // a few requests, and the server has its own limits
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.ContentType = runtime.ContentTypeJSON
	transport, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", cfg.Host, err)
	}
	transport.CheckRedirect = func(to *http.Request, via []*http.Request) error {
		if to.URL.Host != via[0].URL.Host || to.URL.Scheme != via[0].URL.Scheme {
			return errors.New("redirected elsewhere") // by a pod behind the proxy: the credentials would go there
		}
		return nil
	}
	c := &Cluster{params: runtime.NewParameterCodec(scheme)}
	for _, group := range []struct {
		client *rest.Interface
		path   string
		gv     schema.GroupVersion
	}{
		{&c.core, "/api", v1.SchemeGroupVersion},
		{&c.leases, "/apis", coordinationv1.SchemeGroupVersion},
	} {
		cfg.APIPath, cfg.GroupVersion = group.path, &group.gv
		if *group.client, err = rest.RESTClientForConfigAndClient(cfg, transport); err != nil {
			return nil, fmt.Errorf("making a client for %s: %w", cfg.Host, err)
		}
	}
	return c, nil
}
