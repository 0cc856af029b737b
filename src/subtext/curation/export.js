const list=document.getElementById('pairs'),by=document.getElementById('by'),way=document.getElementById('way'),
kind=document.getElementById('kind'),words=document.getElementById('words'),count=document.getElementById('count'),
save=document.getElementById('save'),place='subtext.marks '+location.pathname;
const every=[...list.children];
// On a phone the pairs come first.
if(matchMedia('(max-width:40rem)').matches)document.getElementById('results').open=false;
let marks=Object.create(null);
try{marks=Object.assign(marks,JSON.parse(localStorage.getItem(place)||'{}'));}catch{/* Forbidden: for as long as the page. */}
const named=pair=>pair.dataset.image+'\n'+pair.dataset.second;
const marked=pair=>named(pair) in marks?marks[named(pair)]:pair.dataset.first;
function show(){
const key=by.value,sign=way.value==='up'?1:-1,chosen=kind.value,text=words.value.toLowerCase(),counts={};
every.sort((a,b)=>{const x=a.dataset[key],y=b.dataset[key];
if(x===y)return 0;if(x==='')return 1;if(y==='')return -1;return sign*(Number(x)-Number(y));});
let shown=0;
for(const pair of every){
const mark=marked(pair);
const fits=(chosen==='all'||pair.dataset.kind===chosen||(chosen==='out'&&pair.dataset.out==='1')
||chosen==='mark:'+mark)&&pair.textContent.toLowerCase().includes(text);
pair.hidden=!fits;shown+=fits;list.append(pair);
if(mark)counts[mark]=(counts[mark]||0)+1;
for(const button of pair.querySelectorAll('button'))button.setAttribute('aria-pressed',button.dataset.mark===mark);}
const told=Object.entries(counts).map(([mark,many])=>', '+many+' '+mark).join('');
count.textContent=shown+' of '+every.length+' shown'+told;}
list.addEventListener('click',event=>{
const button=event.target.closest('button');if(!button)return;
const pair=button.closest('li'),mark=button.dataset.mark,now=marked(pair)===mark&&!pair.dataset.first?'':mark;
marks[named(pair)]=now;
try{localStorage.setItem(place,JSON.stringify(marks));}catch{/* Forbidden, or full. */}
for(const other of pair.querySelectorAll('button'))other.setAttribute('aria-pressed',other.dataset.mark===now);
show();button.focus();});
save.addEventListener('click',()=>{
const cell=text=>'"'+text.replaceAll('"','""')+'"',rows=[['image',list.dataset.second,'mark']];
for(const pair of every)if(marked(pair))rows.push([pair.dataset.image,pair.dataset.second,marked(pair)]);
const link=document.createElement('a');
link.href=URL.createObjectURL(new Blob([rows.map(row=>row.map(cell).join(',')).join('\r\n')+'\r\n'],{type:'text/csv'}));
link.download='marks.csv';link.click();setTimeout(()=>URL.revokeObjectURL(link.href),10000);});
for(const control of [by,way,kind])control.addEventListener('change',show);
words.addEventListener('input',show);show();
