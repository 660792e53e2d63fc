package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Reviews are the API server's judgements of requests.
type Reviews interface {
	Create(ctx context.Context, review runtime.Object) error
}

// Auth says who may ask a server (cmd/kubelet/app/auth.go and pkg/kubelet/server/auth.go upstream): the owners of
// client certificates and bearer tokens, if the API server gives them the right to the node's subresource of the path.
type Auth struct {
	Certificate tls.Certificate // of the server
	ClientCAs   *x509.CertPool  // nil: no client certificates
	Reviews     Reviews         // may be nil without Tokens and with AlwaysAllow
	Tokens      bool            // authentication.webhook.enabled
	Anonymous   bool            // authentication.anonymous.enabled
	AlwaysAllow bool            // authorization.mode
	NodeName    string
	// TokenTTL, AllowTTL and DenyTTL are how long judgements are kept: cacheTTL, cacheAuthorizedTTL and
	// cacheUnauthorizedTTL.
	TokenTTL, AllowTTL, DenyTTL time.Duration

	kept *cache.Expiring // users by digests of their tokens, nil for bad ones, and rights by their reviews
}

// Certificate loads a serving certificate with its key. Without a name it takes the node's own from a folder, where it
// makes one first that it signs itself, as a kubelet does.
func Certificate(certFile, keyFile, dir, node string) (tls.Certificate, error) {
	if certFile == "" && keyFile == "" {
		certFile, keyFile = filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
		if ok, err := cert.CanReadCertAndKey(certFile, keyFile); err == nil && !ok {
			certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(node, nil, nil)
			if err == nil { // both make the folder
				err = errors.Join(cert.WriteCert(certFile, certPEM), keyutil.WriteKey(keyFile, keyPEM))
			}
			if err != nil {
				return tls.Certificate{}, fmt.Errorf("making a serving certificate: %w", err)
			}
		}
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		err = fmt.Errorf("loading the serving certificate: %w", err)
	}
	return pair, err
}

// tlsConfig asks clients for a certificate, which authenticate judges.
func (a *Auth) tlsConfig() *tls.Config {
	c := &tls.Config{Certificates: []tls.Certificate{a.Certificate}, ClientCAs: a.ClientCAs, MinVersion: tls.VersionTLS12}
	if a.ClientCAs != nil {
		c.ClientAuth = tls.RequestClientCert
	}
	return c
}

// filter lets through who may ask.
func (s *Server) filter(next http.Handler) http.Handler {
	a := s.cfg.Auth
	a.kept = cache.NewExpiring()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := a.authenticate(r)
		if err != nil {
			s.cfg.Log.Error(err, "Unable to authenticate the request due to an error")
		}
		if user == nil || err != nil {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		verb := map[string]string{"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
		asked := subresources(r.URL.Path)
		for _, subresource := range asked {
			allowed, err := a.allowed(r.Context(), user, verb[r.Method], subresource)
			what := fmt.Sprintf("user=%s, verb=%s, resource=nodes, subresource", user.Username, verb[r.Method])
			switch {
			case err != nil:
				s.cfg.Log.Error(err, "Authorization error", "user", user.Username, "subresource", subresource)
				http.Error(w, "Authorization error ("+what+"="+subresource+")", http.StatusInternalServerError)
			case allowed:
				next.ServeHTTP(w, r)
			case subresource != asked[len(asked)-1]:
				continue
			default:
				s.cfg.Log.V(2).Info("Forbidden", "user", user.Username, "verb", verb[r.Method], "resource", "nodes",
					"subresource(s)", asked)
				http.Error(w, fmt.Sprintf("Forbidden (%s(s)=%v)", what, asked), http.StatusForbidden)
			}
			return
		}
	})
}

// subresources returns the subresources of the node that stand for a path; a right to one of them is enough.
func subresources(path string) []string {
	below := func(top string) bool { return path == top || strings.HasPrefix(path, top+"/") }
	switch {
	case below("/stats"):
		return []string{"stats"}
	case below("/metrics"):
		return []string{"metrics"}
	case below("/pods"), below("/healthz"), below("/configz"):
		top, _, _ := strings.Cut(path[1:], "/")
		return []string{top, "proxy"}
	}
	return []string{"proxy"}
}

// authenticate returns who sent a request, nil for nobody. Wrong credentials do not count as none.
func (a *Auth) authenticate(r *http.Request) (*authenticationv1.UserInfo, error) {
	var wrong error
	if certs := r.TLS.PeerCertificates; a.ClientCAs != nil && len(certs) > 0 {
		others := x509.NewCertPool()
		for _, c := range certs[1:] {
			others.AddCert(c)
		}
		_, err := certs[0].Verify(x509.VerifyOptions{
			Roots: a.ClientCAs, Intermediates: others, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if name := certs[0].Subject; err == nil && name.CommonName != "" {
			return known(&authenticationv1.UserInfo{Username: name.CommonName, Groups: name.Organization}), nil
		}
		wrong = err
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); a.Tokens && strings.EqualFold(scheme, "bearer") && token != "" {
		user, err := a.owner(r.Context(), token)
		if user != nil {
			return known(user), nil
		}
		wrong = cmp.Or(wrong, err)
	}
	if wrong == nil && a.Anonymous {
		return &authenticationv1.UserInfo{Username: "system:anonymous", Groups: []string{"system:unauthenticated"}}, nil
	}
	return nil, wrong
}

// known adds the group of all that are authenticated.
func known(u *authenticationv1.UserInfo) *authenticationv1.UserInfo {
	u = u.DeepCopy()
	u.Groups = append(u.Groups, "system:authenticated")
	return u
}

// owner asks the API server for the owner of a token. A bad token is an error.
func (a *Auth) owner(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	key := sha256.Sum256([]byte(token))
	user, ok := a.kept.Get(key)
	if !ok {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		if err := a.Reviews.Create(ctx, review); err != nil {
			return nil, fmt.Errorf("reviewing a token: %w", err)
		}
		owner := &review.Status.User
		if !review.Status.Authenticated {
			owner = nil
		}
		user = owner
		a.kept.Set(key, user, a.TokenTTL)
	}
	if owner := user.(*authenticationv1.UserInfo); owner != nil {
		return owner, nil
	}
	return nil, errors.New("invalid bearer token")
}

// allowed asks the API server whether a user has a right to a subresource of the node.
func (a *Auth) allowed(
	ctx context.Context, u *authenticationv1.UserInfo, verb, subresource string,
) (bool, error) {
	if a.AlwaysAllow {
		return true, nil
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.Username, UID: u.UID, Groups: u.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: a.NodeName,
		},
	}
	for k, v := range u.Extra {
		spec.Extra[k] = authorizationv1.ExtraValue(v)
	}
	key := spec.String()
	if allowed, ok := a.kept.Get(key); ok {
		return allowed.(bool), nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: spec}
	if err := a.Reviews.Create(ctx, review); err != nil {
		return false, err
	}
	ttl := a.DenyTTL
	if review.Status.Allowed {
		ttl = a.AllowTTL
	}
	a.kept.Set(key, review.Status.Allowed, ttl)
	return review.Status.Allowed, nil
}
