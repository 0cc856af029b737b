--
-- PostgreSQL database dump
--


-- Dumped from database version 18.4
-- Dumped by pg_dump version 18.4

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: library; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA library;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: facets; Type: TABLE; Schema: library; Owner: -
--

CREATE TABLE library.facets (
    key bigint NOT NULL,
    side smallint NOT NULL,
    name text NOT NULL,
    number numeric,
    word text,
    folded text
);


--
-- Name: forgotten; Type: TABLE; Schema: library; Owner: -
--

CREATE TABLE library.forgotten (
    hash bytea NOT NULL
);


--
-- Name: images_vectors; Type: TABLE; Schema: library; Owner: -
--

CREATE TABLE library.images_vectors (
    key bigint NOT NULL,
    view smallint NOT NULL,
    vector public.vector(12) NOT NULL
);
ALTER TABLE ONLY library.images_vectors ALTER COLUMN vector SET STORAGE PLAIN;


--
-- Name: items; Type: TABLE; Schema: library; Owner: -
--

CREATE TABLE library.items (
    key bigint NOT NULL,
    side smallint NOT NULL,
    id text NOT NULL,
    folded_id text NOT NULL,
    path text,
    text text,
    metadata text NOT NULL,
    content bytea NOT NULL,
    stamp text,
    digest bytea NOT NULL,
    vectors_digest bytea NOT NULL,
    words tsvector,
    length integer
);


--
-- Name: jobs; Type: TABLE; Schema: library; Owner: -
--

CREATE TABLE library.jobs (
    number bigint NOT NULL,
    verb text NOT NULL,
    source text,
    started text NOT NULL,
    finished text,
    done bigint NOT NULL,
    total bigint NOT NULL
);


--
-- Name: jobs_number_seq; Type: SEQUENCE; Schema: library; Owner: -
--

ALTER TABLE library.jobs ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME library.jobs_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


--
-- Name: kept; Type: TABLE; Schema: library; Owner: -
--

CREATE TABLE library.kept (
    name text NOT NULL,
    value text NOT NULL,
    written timestamp with time zone DEFAULT now() NOT NULL
);


--
-- Name: layout; Type: TABLE; Schema: library; Owner: -
--

CREATE TABLE library.layout (
    one boolean DEFAULT true NOT NULL,
    version integer NOT NULL,
    CONSTRAINT layout_one_check CHECK (one)
);


--
-- Name: links; Type: TABLE; Schema: library; Owner: -
--

CREATE TABLE library.links (
    image text NOT NULL,
    text text NOT NULL
);


--
-- Name: manifest; Type: TABLE; Schema: library; Owner: -
--

CREATE TABLE library.manifest (
    one boolean DEFAULT true NOT NULL,
    "json" text NOT NULL,
    CONSTRAINT manifest_one_check CHECK (one)
);


--
-- Name: state; Type: TABLE; Schema: library; Owner: -
--

CREATE TABLE library.state (
    name text NOT NULL,
    value bigint NOT NULL
);


--
-- Name: texts_vectors; Type: TABLE; Schema: library; Owner: -
--

CREATE TABLE library.texts_vectors (
    key bigint NOT NULL,
    view smallint NOT NULL,
    vector public.vector(12) NOT NULL
);
ALTER TABLE ONLY library.texts_vectors ALTER COLUMN vector SET STORAGE PLAIN;


--
-- Data for Name: facets; Type: TABLE DATA; Schema: library; Owner: -
--

COPY library.facets (key, side, name, number, word, folded) FROM stdin;
1	0	desk	\N	news	news
1	0	split	\N	test	test
1	0	year	2014	\N	\N
2	0	desk	\N	sport	sport
2	0	split	\N	test	test
2	0	year	1989	\N	\N
3	0	desk	\N	arts	arts
3	0	split	\N	test	test
3	0	year	1995	\N	\N
5	0	desk	\N	sport	sport
5	0	split	\N	test	test
5	0	year	1982	\N	\N
6	0	desk	\N	arts	arts
6	0	split	\N	test	test
6	0	year	2000	\N	\N
7	0	desk	\N	news	news
7	0	split	\N	test	test
7	0	year	2009	\N	\N
8	0	desk	\N	sport	sport
8	0	split	\N	test	test
8	0	year	2006	\N	\N
9	0	desk	\N	arts	arts
9	0	split	\N	test	test
9	0	year	2005	\N	\N
10	0	desk	\N	news	news
10	0	split	\N	test	test
10	0	year	1994	\N	\N
11	1	desk	\N	news	news
11	1	split	\N	test	test
11	1	year	2014	\N	\N
12	1	desk	\N	news	news
12	1	split	\N	test	test
12	1	year	2014	\N	\N
13	1	desk	\N	sport	sport
13	1	split	\N	test	test
13	1	year	1989	\N	\N
14	1	desk	\N	sport	sport
14	1	split	\N	test	test
14	1	year	1989	\N	\N
15	1	desk	\N	arts	arts
15	1	split	\N	test	test
15	1	year	1995	\N	\N
16	1	desk	\N	arts	arts
16	1	split	\N	test	test
16	1	year	1995	\N	\N
19	1	desk	\N	sport	sport
19	1	split	\N	test	test
19	1	year	1982	\N	\N
20	1	desk	\N	sport	sport
20	1	split	\N	test	test
20	1	year	1982	\N	\N
21	1	desk	\N	arts	arts
21	1	split	\N	test	test
21	1	year	2000	\N	\N
22	1	desk	\N	arts	arts
22	1	split	\N	test	test
22	1	year	2000	\N	\N
23	1	desk	\N	news	news
23	1	split	\N	test	test
23	1	year	2009	\N	\N
24	1	desk	\N	news	news
24	1	split	\N	test	test
24	1	year	2009	\N	\N
25	1	desk	\N	sport	sport
25	1	split	\N	test	test
25	1	year	2006	\N	\N
26	1	desk	\N	sport	sport
26	1	split	\N	test	test
26	1	year	2006	\N	\N
27	1	desk	\N	arts	arts
27	1	split	\N	test	test
27	1	year	2005	\N	\N
28	1	desk	\N	arts	arts
28	1	split	\N	test	test
28	1	year	2005	\N	\N
29	1	desk	\N	news	news
29	1	split	\N	test	test
29	1	year	1994	\N	\N
30	1	desk	\N	news	news
30	1	split	\N	test	test
30	1	year	1994	\N	\N
\.


--
-- Data for Name: forgotten; Type: TABLE DATA; Schema: library; Owner: -
--

COPY library.forgotten (hash) FROM stdin;
\\xb3860b587895c3814b5ba00c0ba3fd6e
\\x857db92e7e60d9dcb85ec9414cfe4d47
\\x4435c4462bbc66d1593213f84475c91e
\.


--
-- Data for Name: images_vectors; Type: TABLE DATA; Schema: library; Owner: -
--

COPY library.images_vectors (key, view, vector) FROM stdin;
1	0	[-0.06915998,0.43789083,-0.052072547,-0.52650005,0.011056285,0.14955989,0.18533851,-0.23399304,-0.4200346,-0.19366759,-0.24615104,0.37072164]
2	0	[0.2163992,0.47045213,0.11553763,-0.6555364,-0.16811049,-0.075721525,-0.06685463,0.022835115,-0.1464854,-0.24037825,-0.16067459,0.3804305]
3	0	[-0.17977314,0.24010105,-0.36883903,-0.41291195,-0.15125531,-0.06321824,0.2117457,-0.22189705,-0.2960819,0.07734796,-0.21951737,0.58370394]
5	0	[-0.07857799,0.5084218,-0.07094786,-0.6191366,-0.010892075,0.23976944,0.18287641,-0.1981679,-0.22283871,-0.22739846,-0.16390777,0.29734468]
6	0	[-0.08636561,0.26387218,-0.16650775,-0.56110996,-0.250764,-0.132646,-0.042270508,-0.1401376,-0.3847179,0.08077718,-0.25377756,0.50941575]
7	0	[0.017010039,0.3417921,-0.019429874,-0.3764468,-0.06319243,-0.09452477,0.40623432,-0.27603376,-0.2636097,-0.21990949,-0.4325193,0.42629412]
8	0	[-0.08086781,0.47624162,-0.16101114,-0.44032004,-0.03924218,0.13291606,0.28174078,-0.23933099,-0.22980888,-0.31218842,-0.33552808,0.35795444]
9	0	[0.22881687,0.27745456,0.19641556,-0.19987907,-0.16577812,-0.031920515,0.20391436,-0.18344854,-0.17339642,-0.5562866,-0.34561586,0.4789822]
10	0	[-0.1378321,0.59857804,-0.08050425,-0.43377817,-0.08711163,-0.22989747,-0.079468705,-0.105286546,0.060376182,-0.25206992,-0.19327253,0.49566266]
\.


--
-- Data for Name: items; Type: TABLE DATA; Schema: library; Owner: -
--

COPY library.items (key, side, id, folded_id, path, text, metadata, content, stamp, digest, vectors_digest, words, length) FROM stdin;
1	0	c42.jpg	c42.jpg	c42.jpg	\N	{"split": "test", "year": 2014, "desk": "news"}	\\x661c7c5d48b46a08c54825af733500d4	\N	\\x8c73ce1ce804ccdd1e04db4a5e2061dd	\\xb48b7e037142fc49effaa77b1c5ab80c	\N	\N
2	0	c43.jpg	c43.jpg	c43.jpg	\N	{"split": "test", "year": 1989, "desk": "sport"}	\\x00dc6415c82a40dddd4c58b8dd537a7c	\N	\\x00f812a2611280f638a875de3642ebda	\\x6c52337544ef5f72fdd8127f4532bab1	\N	\N
3	0	c44.jpg	c44.jpg	c44.jpg	\N	{"split": "test", "year": 1995, "desk": "arts"}	\\x41a6e1398af91a5387baac7fd75ac51a	\N	\\xcc80499c9a1ae2dc62d448a635a71be6	\\xb65975709404cce7c107f6f81db7dd77	\N	\N
5	0	c46.jpg	c46.jpg	c46.jpg	\N	{"split": "test", "year": 1982, "desk": "sport"}	\\xe7aa43405738dcce7b14e3ce1cda7e47	\N	\\xab709ce7aa38b076cc254c0894119091	\\xb8e525404134ffc89092c73d2a86d3f2	\N	\N
6	0	c47.jpg	c47.jpg	c47.jpg	\N	{"split": "test", "year": 2000, "desk": "arts"}	\\x989427eb7d1a46016b33325cbe1b6409	\N	\\xc44f76d4ef2979c158f01dda6611ec08	\\xdbfffc890e860b2b8b6e60a624aacb82	\N	\N
7	0	c48.jpg	c48.jpg	c48.jpg	\N	{"split": "test", "year": 2009, "desk": "news"}	\\xb6227ac0f3bc682864bbbb179d01e322	\N	\\x8db303f26a1395b566e8dd07dff72466	\\x449545d928e6132cb4ef0fa9b9365a53	\N	\N
8	0	c49.jpg	c49.jpg	c49.jpg	\N	{"split": "test", "year": 2006, "desk": "sport"}	\\x0eb1d2dbaf2437b17d74a4222a253588	\N	\\x174ff65627bd58d89ae384c711e6ef3e	\\x3f3bc7521c13b9504ba6d1987b9b29e2	\N	\N
9	0	c50.jpg	c50.jpg	c50.jpg	\N	{"split": "test", "year": 2005, "desk": "arts"}	\\x285d6c92a3ffe45bdacb4b42b4aeed51	\N	\\x95924c168906cfe6976d39b57f45467d	\\xdaae6eb19347a64ab14ebcf5747aed0e	\N	\N
10	0	c51.jpg	c51.jpg	c51.jpg	\N	{"split": "test", "year": 1994, "desk": "news"}	\\xcf4e6f528c2d4831f877b28f839b7ca5	\N	\\x397a6a4dff6e4894568f07318fdea687	\\x451eeed6a62dbb0da41b2e83a015f89b	\N	\N
11	1	c42.jpg#0	c42.jpg#0	\N	a white bird	{"split": "test", "year": 2014, "desk": "news"}	\\x96c437e7241f2d285c542dc8d20c70d5	\N	\\x9d6f67cdf463d771ca150c89ecea6430	\\x5ad6f72c53365e705b92e10fbd1b475c	'a':1 'bird':3 'white':2	3
12	1	c42.jpg#1	c42.jpg#1	\N	the bird there is white	{"split": "test", "year": 2014, "desk": "news"}	\\xb65be56e4eb3ff84a0921a2dbba4d05d	\N	\\x2b29bc601acf7a2400b93026ca2be097	\\x53031a2c2a3b097177166d4cabb3556a	'bird':2 'is':4 'the':1 'there':3 'white':5	5
13	1	c43.jpg#0	c43.jpg#0	\N	a blue cat	{"split": "test", "year": 1989, "desk": "sport"}	\\x8673d2d297c4415de455853e4f7751f1	\N	\\x6f07d4ee014886b58ba841f9661bcf7e	\\x3ab3559fbf5c2eb135628c42ad88bc14	'a':1 'blue':2 'cat':3	3
14	1	c43.jpg#1	c43.jpg#1	\N	the cat there is blue	{"split": "test", "year": 1989, "desk": "sport"}	\\x1a6135b288312ea8a66cc17e6866a6bb	\N	\\xca06bd8cf17232c8846e2cc0905a9c7a	\\x0530d3834429e6971fce5637d4426c20	'blue':5 'cat':2 'is':4 'the':1 'there':3	5
15	1	c44.jpg#0	c44.jpg#0	\N	a pink horse	{"split": "test", "year": 1995, "desk": "arts"}	\\xa836b3f4d4fe0045f21fcd35149717fb	\N	\\x11b7e19223b57a0593af93afa92f3218	\\xe0bc40901c2b82d7034a86daaafb614f	'a':1 'horse':3 'pink':2	3
16	1	c44.jpg#1	c44.jpg#1	\N	the horse there is pink	{"split": "test", "year": 1995, "desk": "arts"}	\\xb010e9ca6232881fe87806bb01c62df8	\N	\\x6167df58d2538845a102318313cf9306	\\x16909545b705f5c80268a15da316bcd9	'horse':2 'is':4 'pink':5 'the':1 'there':3	5
19	1	c46.jpg#0	c46.jpg#0	\N	a red bird	{"split": "test", "year": 1982, "desk": "sport"}	\\xad9ad6f795b58a3259a4bcbf8f390e5c	\N	\\xe9898295e8d0f55064ee197982027177	\\x2e1f345423cb45e9e66d6cb68e7db790	'a':1 'bird':3 'red':2	3
20	1	c46.jpg#1	c46.jpg#1	\N	the bird there is red	{"split": "test", "year": 1982, "desk": "sport"}	\\xde1d6b41fcfac68f0d837e617d8baee2	\N	\\x7a2085b1ba790b891d3069e3d55bff4d	\\x19981aaf602dff78adb88c06b8e8242a	'bird':2 'is':4 'red':5 'the':1 'there':3	5
21	1	c47.jpg#0	c47.jpg#0	\N	a grey tree	{"split": "test", "year": 2000, "desk": "arts"}	\\x8db52e99537e68171dda2d9c605fc782	\N	\\xd9a767d0fee7f89c66af6665313b6de7	\\x2d6e144efb54b77d01f796cc0a00ee75	'a':1 'grey':2 'tree':3	3
22	1	c47.jpg#1	c47.jpg#1	\N	the tree there is grey	{"split": "test", "year": 2000, "desk": "arts"}	\\x353803fd53987e4d10664b68ce5968f0	\N	\\x9302aea69811ade97567aa964ec90468	\\xdf4af137c0fdb806ea6c115583ca2d71	'grey':5 'is':4 'the':1 'there':3 'tree':2	5
23	1	c48.jpg#0	c48.jpg#0	\N	a black house	{"split": "test", "year": 2009, "desk": "news"}	\\xbb4b71b02f3be9cf84b1e1ff20d413a0	\N	\\xb246b191354a34f0da0c86d9eaec4a9d	\\x014fdf1f09d0dce98d7dc1f8e3a52295	'a':1 'black':2 'house':3	3
24	1	c48.jpg#1	c48.jpg#1	\N	the house there is black	{"split": "test", "year": 2009, "desk": "news"}	\\xae5955d94478782f6e3b15dfc97716cb	\N	\\x9e090941d4e1e28a060a6f8e68e8d09d	\\x61414546c82ee028a9c33a9f820dd32e	'black':5 'house':2 'is':4 'the':1 'there':3	5
25	1	c49.jpg#0	c49.jpg#0	\N	a black bird	{"split": "test", "year": 2006, "desk": "sport"}	\\xa8d9e245315e9a769c28ae9748dbd97e	\N	\\x01ad5b53560f30104d6014fadf4662aa	\\xf2eabbaec56f992f261aa16e1714ec99	'a':1 'bird':3 'black':2	3
26	1	c49.jpg#1	c49.jpg#1	\N	the bird there is black	{"split": "test", "year": 2006, "desk": "sport"}	\\xd57d60826ba8e4cde8180603431c9e5a	\N	\\x3e0f546d6e3411b6a2abf008f32c6a0e	\\xc418bf2b65274df7f64ad20ef237f486	'bird':2 'black':5 'is':4 'the':1 'there':3	5
27	1	c50.jpg#0	c50.jpg#0	\N	a black cat	{"split": "test", "year": 2005, "desk": "arts"}	\\xd49ad1cbf27f46aabeb3f5887fc66375	\N	\\x59f71c1421ae9ccbaf51a47c61ebf30d	\\x4541a202fb732b56206422dd6faf682a	'a':1 'black':2 'cat':3	3
28	1	c50.jpg#1	c50.jpg#1	\N	the cat there is black	{"split": "test", "year": 2005, "desk": "arts"}	\\xdecf608dbb01279b2c071a1488441c67	\N	\\x18bea549de9e83b77b71012f70e93d8e	\\x3c93859fcaaf55ad840baee360ad58df	'black':5 'cat':2 'is':4 'the':1 'there':3	5
29	1	c51.jpg#0	c51.jpg#0	\N	a pink boat	{"split": "test", "year": 1994, "desk": "news"}	\\xfb1955ee35df9ad788cd050cbdf39d90	\N	\\x134470f32e3ea09cb30b0471ac4aeb62	\\x8df1a4845c2cde5991396f4aaa522bb1	'a':1 'boat':3 'pink':2	3
30	1	c51.jpg#1	c51.jpg#1	\N	the boat there is pink	{"split": "test", "year": 1994, "desk": "news"}	\\xcd549ef38f8cd1a0ddcaf5474a250c9f	\N	\\xd7102d135b0c6e8294f57b75d24fa49c	\\x524c63f72cab85e50edb2ac24c161097	'boat':2 'is':4 'pink':5 'the':1 'there':3	5
\.


--
-- Data for Name: jobs; Type: TABLE DATA; Schema: library; Owner: -
--

COPY library.jobs (number, verb, source, started, finished, done, total) FROM stdin;
1	build	{"bad": "refuse", "data": "captions.jsonl", "features": "features.npz", "images": null, "split": "test", "split_seed": 0, "text_features": null}	2026-11-22T23:50:39+00:00	2026-11-22T23:50:40+00:00	30	30
\.


--
-- Data for Name: kept; Type: TABLE DATA; Schema: library; Owner: -
--

COPY library.kept (name, value, written) FROM stdin;
\.


--
-- Data for Name: layout; Type: TABLE DATA; Schema: library; Owner: -
--

COPY library.layout (one, version) FROM stdin;
t	2
\.


--
-- Data for Name: links; Type: TABLE DATA; Schema: library; Owner: -
--

COPY library.links (image, text) FROM stdin;
c42.jpg	c42.jpg#0
c42.jpg	c42.jpg#1
c43.jpg	c43.jpg#0
c43.jpg	c43.jpg#1
c44.jpg	c44.jpg#0
c44.jpg	c44.jpg#1
c46.jpg	c46.jpg#0
c46.jpg	c46.jpg#1
c47.jpg	c47.jpg#0
c47.jpg	c47.jpg#1
c48.jpg	c48.jpg#0
c48.jpg	c48.jpg#1
c49.jpg	c49.jpg#0
c49.jpg	c49.jpg#1
c50.jpg	c50.jpg#0
c50.jpg	c50.jpg#1
c51.jpg	c51.jpg#0
c51.jpg	c51.jpg#1
\.


--
-- Data for Name: manifest; Type: TABLE DATA; Schema: library; Owner: -
--

COPY library.manifest (one, "json") FROM stdin;
t	{\n  "kind": "subtext index",\n  "fingerprint": "6b94798e67d8c2f1f11f054922cdb5d2",\n  "run": "runs/dual",\n  "host": "dual",\n  "width": 12,\n  "scale": 20.0,\n  "shift": 0.0,\n  "views": {\n    "images": 1,\n    "texts": 1\n  },\n  "root": ".",\n  "data": {\n    "data": "captions.jsonl",\n    "images": null,\n    "features": "features.npz",\n    "text_features": null,\n    "split_seed": 0,\n    "bad": "refuse",\n    "split": "test"\n  },\n  "store": "store-1",\n  "generation": 0,\n  "exact_up_to": 20000,\n  "created": "2026-11-22T23:50:39+00:00",\n  "version": "0.1.0",\n  "format": 2,\n  "checksum": "54bbc50b59cb3034"\n}\n
\.


--
-- Data for Name: state; Type: TABLE DATA; Schema: library; Owner: -
--

COPY library.state (name, value) FROM stdin;
key	30
generation	5
images	9
worded	18
words	72
facets	81
texts	18
\.


--
-- Data for Name: texts_vectors; Type: TABLE DATA; Schema: library; Owner: -
--

COPY library.texts_vectors (key, view, vector) FROM stdin;
11	0	[-0.38205862,0.4297703,0.2160686,-0.35416955,-0.3734636,0.27602756,0.11307874,0.17334516,-0.37478974,0.21566327,0.20530996,0.09785411]
12	0	[-0.35701677,0.4587248,0.28242937,-0.29713035,-0.3836397,0.20933633,0.1610659,0.17448537,-0.3854979,0.14269233,0.22899616,0.15893584]
13	0	[-0.058689207,0.2820866,0.38110846,-0.2855564,-0.5776811,-0.18538392,0.20352921,0.2830694,-0.22323254,-0.06467063,0.20245363,0.32489842]
14	0	[-0.12558894,0.34884176,0.39524105,-0.2554937,-0.53265786,-0.1179314,0.22141154,0.25500047,-0.27489287,-0.05188861,0.2246505,0.317234]
15	0	[-0.3237978,0.29150218,0.13494146,-0.2203582,-0.4090216,-0.018795798,0.44708422,0.35905698,-0.2286834,0.1613892,0.14553298,0.3839712]
16	0	[-0.31690243,0.3756086,0.24106732,-0.2035828,-0.40906912,0.010761777,0.3830486,0.29434073,-0.2944202,0.09737545,0.19481662,0.35213187]
19	0	[-0.33843032,0.42312288,0.17421053,-0.30506444,-0.4574337,0.3536412,-0.010545787,0.011408877,-0.43370825,0.15470359,0.17643076,-0.072837315]
20	0	[-0.33507347,0.4617525,0.25323957,-0.27231982,-0.45216584,0.2752412,0.07130411,0.060765963,-0.43585506,0.107108064,0.21127191,0.034002136]
21	0	[-0.3364682,0.25922015,0.23327278,-0.19122286,-0.43270347,-0.093267605,0.20809522,0.09392614,-0.5218978,-0.039794695,0.36470547,0.2712635]
22	0	[-0.31887886,0.35346687,0.30241293,-0.18139057,-0.41655126,-0.03364209,0.22676887,0.12352447,-0.47237208,-0.030803194,0.32827437,0.27539763]
23	0	[-0.016337857,0.2425546,0.25989854,-0.19180498,-0.5058562,-0.15503693,0.51675314,0.3233804,-0.19007309,0.13458508,0.13850872,0.33406985]
24	0	[-0.098206885,0.32671747,0.31249675,-0.18964483,-0.48642722,-0.0955293,0.45452833,0.2874076,-0.25596187,0.09368662,0.1816358,0.32828328]
25	0	[-0.14369883,0.46731094,0.29712385,-0.212471,-0.54040366,0.21336102,0.18003963,0.17300545,-0.41204718,0.101896465,0.16408783,0.14335161]
26	0	[-0.18955919,0.4782826,0.33285397,-0.19787955,-0.49370632,0.16580133,0.20378098,0.17216745,-0.4062814,0.06496682,0.19721085,0.1865029]
27	0	[0.01968536,0.3104093,0.37803045,-0.115790606,-0.41997206,-0.16934617,0.3777177,0.31723574,-0.2771602,-0.008012747,0.21011727,0.42136568]
28	0	[-0.068575084,0.36951488,0.39290437,-0.13163093,-0.41746324,-0.10606373,0.34832254,0.27976042,-0.31421703,-0.010555067,0.23021236,0.38742042]
29	0	[-0.3461034,0.42461628,0.3810009,-0.20249507,-0.3546995,0.0018629673,0.19779222,0.25679767,-0.27913344,-0.08432314,0.24374966,0.37205613]
30	0	[-0.32583,0.4452448,0.38728276,-0.189246,-0.3628446,0.020256247,0.21430223,0.22757573,-0.31243056,-0.062431816,0.2499276,0.34063607]
\.


--
-- Name: jobs_number_seq; Type: SEQUENCE SET; Schema: library; Owner: -
--

SELECT pg_catalog.setval('library.jobs_number_seq', 1, true);


--
-- Name: forgotten forgotten_pkey; Type: CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.forgotten
    ADD CONSTRAINT forgotten_pkey PRIMARY KEY (hash);


--
-- Name: images_vectors images_vectors_pkey; Type: CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.images_vectors
    ADD CONSTRAINT images_vectors_pkey PRIMARY KEY (key, view);


--
-- Name: items items_pkey; Type: CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.items
    ADD CONSTRAINT items_pkey PRIMARY KEY (key);


--
-- Name: items items_side_id_key; Type: CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.items
    ADD CONSTRAINT items_side_id_key UNIQUE (side, id);


--
-- Name: jobs jobs_pkey; Type: CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (number);


--
-- Name: kept kept_pkey; Type: CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.kept
    ADD CONSTRAINT kept_pkey PRIMARY KEY (name);


--
-- Name: layout layout_pkey; Type: CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.layout
    ADD CONSTRAINT layout_pkey PRIMARY KEY (one);


--
-- Name: links links_pkey; Type: CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.links
    ADD CONSTRAINT links_pkey PRIMARY KEY (image, text);


--
-- Name: manifest manifest_pkey; Type: CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.manifest
    ADD CONSTRAINT manifest_pkey PRIMARY KEY (one);


--
-- Name: state state_pkey; Type: CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.state
    ADD CONSTRAINT state_pkey PRIMARY KEY (name);


--
-- Name: texts_vectors texts_vectors_pkey; Type: CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.texts_vectors
    ADD CONSTRAINT texts_vectors_pkey PRIMARY KEY (key, view);


--
-- Name: facets_by_number; Type: INDEX; Schema: library; Owner: -
--

CREATE INDEX facets_by_number ON library.facets USING btree (side, name, number, key);


--
-- Name: facets_by_word; Type: INDEX; Schema: library; Owner: -
--

CREATE INDEX facets_by_word ON library.facets USING btree (side, name, "left"(word, 200), key) WHERE (word IS NOT NULL);


--
-- Name: facets_of_items; Type: INDEX; Schema: library; Owner: -
--

CREATE INDEX facets_of_items ON library.facets USING btree (key);


--
-- Name: items_by_words; Type: INDEX; Schema: library; Owner: -
--

CREATE INDEX items_by_words ON library.items USING gin (words);


--
-- Name: links_of_texts; Type: INDEX; Schema: library; Owner: -
--

CREATE INDEX links_of_texts ON library.links USING btree (text, image);


--
-- Name: facets facets_key_fkey; Type: FK CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.facets
    ADD CONSTRAINT facets_key_fkey FOREIGN KEY (key) REFERENCES library.items(key) ON DELETE CASCADE;


--
-- Name: images_vectors images_vectors_key_fkey; Type: FK CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.images_vectors
    ADD CONSTRAINT images_vectors_key_fkey FOREIGN KEY (key) REFERENCES library.items(key) ON DELETE CASCADE;


--
-- Name: texts_vectors texts_vectors_key_fkey; Type: FK CONSTRAINT; Schema: library; Owner: -
--

ALTER TABLE ONLY library.texts_vectors
    ADD CONSTRAINT texts_vectors_key_fkey FOREIGN KEY (key) REFERENCES library.items(key) ON DELETE CASCADE;


--
-- PostgreSQL database dump complete
--


