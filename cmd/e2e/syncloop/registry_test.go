//go:build e2e

package syncloop

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kdiag/kdiag/cmd/e2e/e2etest"
	"github.com/kdiag/kdiag/cmd/e2e/nodebox"
	"github.com/kdiag/kdiag/plegbench/syncloop"
)

const (
	registryUser = "AWS"
	password     = "s3cret:password"
	identity     = "s3cret-identity-token"
)

// A registry serves one image with busybox under every name, by the distribution API. Clients of the names below token
// exchange identity for a token; those of other names have a name and password.
type registry struct {
	*httptest.Server
	blobs    map[string][]byte // by digest
	manifest []byte
}

// newRegistry serves a registry on the loopback interface, and tells the runtime of it.
func newRegistry(t *testing.T, dir string, secure bool) *registry {
	t.Helper()
	r := &registry{blobs: map[string][]byte{}}
	add := func(kind string, data []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		r.blobs[digest] = data
		return map[string]any{"mediaType": kind, "digest": digest, "size": len(data)}
	}
	layer := add("application/vnd.oci.image.layer.v1.tar", nodebox.Busybox(t))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{layer["digest"]}},
	})
	e2etest.Must(t, err)
	r.manifest, err = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": add("application/vnd.oci.image.config.v1+json", config), "layers": []any{layer},
	})
	e2etest.Must(t, err)
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = log.New(io.Discard, "", 0) // the runtime tries plain HTTP when it was refused
	if secure {
		r.StartTLS()
	} else {
		r.Start()
	}
	t.Cleanup(r.Close)
	at := filepath.Join(dir, r.host())
	hosts := fmt.Sprintf("[host.%q]\n", r.URL)
	e2etest.Must(t, os.MkdirAll(at, 0o755))
	if secure {
		block := &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}
		e2etest.Must(t, os.WriteFile(at+"/ca.pem", pem.EncodeToMemory(block), 0o644))
		hosts += fmt.Sprintf("ca = %q\n", at+"/ca.pem")
	}
	e2etest.Must(t, os.WriteFile(at+"/hosts.toml", []byte(hosts), 0o644))
	return r
}

func (r *registry) host() string { return r.Listener.Addr().String() }

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name, secret, _ := req.BasicAuth()
	if req.URL.Path == "/token" {
		if req.PostFormValue("refresh_token") != identity {
			http.Error(w, "unknown identity", http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprint(w, `{"access_token": "access", "expires_in": 60}`)
		return
	}
	challenge, allowed := `Basic realm="r"`, name == registryUser && secret == password
	if strings.HasPrefix(req.URL.Path, "/v2/token/") {
		challenge = fmt.Sprintf("Bearer realm=%q,service=r", r.URL+"/token")
		allowed = req.Header.Get("Authorization") == "Bearer access"
	}
	last := filepath.Base(req.URL.Path)
	content, kind := r.blobs[last], "application/octet-stream"
	if filepath.Base(filepath.Dir(req.URL.Path)) == "manifests" {
		content, kind = r.manifest, "application/vnd.oci.image.manifest.v1+json"
	}
	switch {
	case !allowed:
		w.Header().Set("WWW-Authenticate", challenge)
		http.Error(w, "no", http.StatusUnauthorized)
	case content == nil:
		http.NotFound(w, req)
	default:
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		w.Header().Set("Docker-Content-Digest", fmt.Sprintf("sha256:%x", sha256.Sum256(content)))
		if req.Method != http.MethodHead {
			_, _ = w.Write(content)
		}
	}
}

// loginSecret is a pull secret with a docker config of the form that its key has.
func loginSecret(name, key, registry, login string) *v1.Secret {
	s := &v1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: v1.SecretTypeDockercfg,
	}
	config := fmt.Sprintf(`{%q: %s}`, registry, login)
	if key == v1.DockerConfigJsonKey {
		s.Type, config = v1.SecretTypeDockerConfigJson, `{"auths": `+config+`}`
	}
	s.Data = map[string][]byte{key: []byte(config)}
	return s
}

// Images come from registries, plain and TLS, that demand what the pods' pull secrets have: static pods' from files,
// bound pods' from the API server. No secret is in the log or in a trace.
func TestEndToEndPullSecrets(t *testing.T) {
	t.Parallel()
	n := newNode(t, 20)
	plain, secure := newRegistry(t, n.box.Registries(), false), newRegistry(t, n.box.Registries(), true)
	named := fmt.Sprintf(`{"username": %q, "password": %q}`, registryUser, password)
	wrong := `{"username": "AWS", "password": "s3cret-of-another"}`
	encoded := fmt.Sprintf(`{"auth": %q}`, base64.StdEncoding.EncodeToString([]byte(registryUser+":"+password)))
	token := fmt.Sprintf(`{"auth": "eDo=", "identitytoken": %q}`, identity)
	_, port, _ := strings.Cut(plain.host(), ":")
	const legacy, modern = v1.DockerConfigKey, v1.DockerConfigJsonKey
	secrets := []*v1.Secret{
		loginSecret("legacy", legacy, "http://"+plain.host()+"/v2/", named),
		loginSecret("modern", modern, secure.host(), encoded), loginSecret("token", modern, secure.host(), token),
		loginSecret("wildcard", modern, "127.*.0.*:"+port+"/team", encoded),
		loginSecret("wrong", modern, secure.host()+"/team", wrong), // tried first: its path is longer
		loginSecret("elsewhere", modern, secure.host()+"/others", encoded),
	}
	clerk := &v1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: "clerk", Namespace: namespace},
	}
	clerk.ImagePullSecrets = []v1.LocalObjectReference{{Name: "modern"}}
	for _, object := range append([]metav1.Object{clerk}, objects(secrets)...) {
		data, err := json.Marshal(object)
		e2etest.Must(t, err)
		n.write(n.cfg.Objects, object.GetName(), data)
	}
	image := func(r *registry, path string) string { return r.host() + "/" + path }
	pod := func(name, image string, secrets ...string) *v1.Pod {
		p := newPod(name, shell("c", forever))
		p.Spec.Containers[0].Image = image
		for _, secret := range secrets {
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: secret})
		}
		return p
	}
	account := pod("account", image(secure, "team/account"))
	account.Spec.ServiceAccountName = clerk.Name
	for _, p := range []*v1.Pod{
		account, pod("legacy", image(plain, "team/legacy:1"), "legacy"), pod("modern", image(secure, "modern"), "modern"),
		pod("token", image(secure, "token/app"), "token"), pod("wildcard", image(plain, "team/wildcard"), "wildcard"),
		pod("second", image(secure, "team/second"), "lost", "wrong", "modern"),
		pod("none", image(plain, "team/none")), pod("elsewhere", image(secure, "team/elsewhere"), "elsewhere"),
		pod("refused", image(secure, "team/refused"), "wrong"),
	} {
		n.apply(p)
	}
	n.cfg.Log = n.log.Logger(9)
	var trace []string
	n.cfg.Trace = syncloop.NewTrace(namespace+"/second", e2eNode, func(s syncloop.Step) { trace = append(trace, s.Text) })
	n.start()
	n.awaitReady("account", "legacy", "modern", "token", "wildcard", "second")
	n.event("second", "FailedToRetrieveImagePullSecret", "(lost)")
	for _, name := range []string{"none", "elsewhere", "refused"} {
		n.awaitPod("the refusal of "+name, name, func(p *v1.Pod) bool {
			w := containerOf(p).State.Waiting
			return w != nil && strings.Contains(w.Message, "401 Unauthorized")
		})
	}
	n.stop()

	api := serverInMemory()
	n.cfg.Client, n.cfg.Register, n.cfg.Objects, n.cfg.Manifests = api.node, true, "", ""
	for _, s := range secrets[:2] {
		_, err := api.CoreV1().Secrets(namespace).Create(t.Context(), s, metav1.CreateOptions{})
		e2etest.Must(t, err)
	}
	n.start()
	bound := pod("bound", image(secure, "team/bound"), "modern")
	bound.Spec.NodeName = e2eNode
	bound, err := api.CoreV1().Pods(namespace).Create(t.Context(), bound, metav1.CreateOptions{})
	e2etest.Must(t, err)
	n.awaitBound(api, bound.Name, ready)
	n.stop()
	text := strings.Join(append(n.log.Lines(""), trace...), "\n")
	for _, secret := range []string{password, identity, "s3cret", base64.StdEncoding.EncodeToString([]byte("AWS:" + password))} {
		if strings.Contains(text, secret) {
			t.Errorf("the log or the trace has %s", secret)
		}
	}
	if len(trace) < 10 {
		t.Errorf("the trace has %q", trace)
	}
}

func objects(secrets []*v1.Secret) (all []metav1.Object) {
	for _, s := range secrets {
		all = append(all, s)
	}
	return all
}
